"""The API process over real servers, shared by the tests of a module; no worker, no dead-letter consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

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


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    """A module that needs other settings, or more processes, has a fixture of this name itself."""
    with api_alone(places) as shared:
        yield shared


@pytest.fixture
def running(shared: Shared[Stack], request: pytest.FixtureRequest) -> Iterator[Stack]:
    """What the module shares, for one test."""
    with shared.lent(request.node) as stack:
        yield stack
