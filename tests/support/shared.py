"""One running place for all tests of a module, where starting it for each would take longer than the test.

It is emptied after each test and thrown away after one that failed, so that no test meets another's leavings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import pytest

from tests.support.databases import Database, fresh_database
from tests.support.processes import Processes
from tests.support.servers import Servers
from tests.support.vhosts import Vhost, fresh_vhost

# Set on a test's item by tests/conftest.py.
PROCESSES = pytest.StashKey[Processes]()
FAILED = pytest.StashKey[bool]()


class Place(Protocol):
    def empty(self) -> None:
        """Leave no message and no row of the last test."""

    def close(self) -> None:
        """Close what is neither a process nor on a server."""


T = TypeVar("T", bound=Place)


@dataclass(frozen=True)
class Places:
    """Makes what a test gets from the fixtures `vhost`, `database` and `processes`."""

    servers: Servers
    template_database: str
    directories: Callable[[], Path]

    @contextmanager
    def fresh(self) -> Iterator[tuple[Vhost, Database, Processes]]:
        urls = self.servers.urls
        with ExitStack() as stack:
            vhost = stack.enter_context(fresh_vhost(urls.amqp, urls.management))
            database = stack.enter_context(fresh_database(urls.database, self.template_database))
            processes = Processes(self.directories())
            stack.callback(processes.close)
            yield vhost, database, processes

    @contextmanager
    def shared(self, make: Callable[[Vhost, Database, Processes], T]) -> Iterator[Shared[T]]:
        """For a fixture of scope `module`; `make` starts what the tests share."""
        shared = Shared(self, make)
        try:
            yield shared
        finally:
            shared.close()


class Shared(Generic[T]):
    """Made at the first use."""

    def __init__(self, places: Places, make: Callable[[Vhost, Database, Processes], T]) -> None:
        self._places = places
        self._make = make
        self._stack = ExitStack()
        self._made: tuple[T, Processes] | None = None

    @contextmanager
    def lent(self, item: pytest.Item) -> Iterator[T]:
        """For the duration of one test."""
        if self._made is None:
            vhost, database, processes = self._stack.enter_context(self._places.fresh())
            item.stash[PROCESSES] = processes
            self._made = self._make(vhost, database, processes), processes
        made, item.stash[PROCESSES] = self._made
        yield made
        started = self._made[1].started
        if item.stash.get(FAILED, True) or any(process.exit_code is not None for process in started):
            self.close()
        else:
            made.empty()
            for process in started:
                process.forget_log()

    def close(self) -> None:
        if self._made is not None:
            self._made[0].close()
        self._made = None
        self._stack.close()
