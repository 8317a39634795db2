"""Every process over real servers, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.stubs import start_third_party
from tests.support.vhosts import Vhost

NOTHING: Mapping[str, str] = MappingProxyType({})


@contextmanager
def all_running(places: Places, settings: Mapping[str, str] = NOTHING) -> Iterator[Shared[Stack]]:
    """The topology is applied; API, one worker, the dead-letter consumer and a third party run."""

    def make(vhost: Vhost, database: Database, processes: Processes) -> Stack:
        third_party = start_third_party(processes)
        told = {"REDRIVE_THIRD_PARTY_URL": third_party.url, **settings}
        stack = Stack(vhost, database, processes, told, third_party=third_party)
        stack.apply_topology()
        stack.start_api()
        stack.start_worker(concurrency=1)
        stack.start_consumer()
        return stack

    with places.shared(make) as shared:
        yield shared
