"""An HTTP receiver of a test's own: takes every POST, or answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dev.loopback_http import Request, Response, port_of, serve
from tests.support import background


@dataclass
class Receiver:
    """`failing`: statuses of the next answers. `taken` and `failed`: requests, oldest first."""

    port: int = 0
    failing: list[int] = field(default_factory=list)
    taken: list[Request] = field(default_factory=list)
    failed: list[Request] = field(default_factory=list)

    async def handle(self, request: Request) -> Response:
        if self.failing:
            self.failed.append(request)
            return Response(self.failing.pop(0))
        self.taken.append(request)
        return Response.of({})


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listens until the end of the block."""
    made = Receiver()
    server = background.run(serve(made.handle, 0))
    made.port = port_of(server)
    try:
        yield made
    finally:
        background.run(_close(server))


async def _close(server: asyncio.Server) -> None:
    server.close()
