"""An HTTP receiver of a test's own: takes every POST, or answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from dev.loopback_http import Request, Response, port_of, serve
from tests.support import background


@dataclass
class Receiver:
    """`failing`: the next answers, or their statuses. `taken` and `failed`: requests, oldest first.

    `before`: called with each request before it is answered, in a thread.
    """

    host: str = "127.0.0.1"
    port: int = 0
    failing: list[int | Response] = field(default_factory=list)
    taken: list[Request] = field(default_factory=list)
    failed: list[Request] = field(default_factory=list)
    before: Callable[[Request], None] | None = None

    async def handle(self, request: Request) -> Response:
        if self.before is not None:
            await asyncio.to_thread(self.before, request)
        if self.failing:
            self.failed.append(request)
            answer = self.failing.pop(0)
            return Response(answer) if isinstance(answer, int) else answer
        self.taken.append(request)
        return Response.of({})

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/"


@contextmanager
def receiver(host: str = "127.0.0.1") -> Iterator[Receiver]:
    """Listens until the end of the block."""
    made = Receiver(host)
    server = background.run(serve(made.handle, 0, host))
    made.port = port_of(server)
    try:
        yield made
    finally:
        background.run(_close(server))


async def _close(server: asyncio.Server) -> None:
    server.close()


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made
