"""The API process over real servers, shared by the tests of a module; no worker, no dead-letter consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.vhosts import Vhost


@contextmanager
def api_alone(places: Places, **settings: str) -> Iterator[Shared[Stack]]:
    """The topology is applied and the API ready, with these settings beside the usual ones."""

    def make(vhost: Vhost, database: Database, processes: Processes) -> Stack:
        stack = Stack(vhost, database, processes)
        stack.apply_topology()
        stack.start_api(ready=True, **settings)
        return stack

    with places.shared(make) as shared:
        yield shared
