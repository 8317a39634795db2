"""A real TCP proxy on loopback that can cut, refuse and hold: network outages without touching the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from types import TracebackType
from urllib.parse import urlsplit

from tests.support import background
from tests.support.ports import free_port

DEFAULT_PORTS = {"amqp": 5672, "http": 80, "postgresql": 5432, "postgres": 5432}
CHUNK = 65_536
HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"


class TcpProxy:
    """Forwards `port` on 127.0.0.1 to the server that `url` names; `.url` is that URL through the proxy.

    With `tls` clients speak it to the proxy (`amqps`), and the proxy plain text to the server.
    `heartbeats`: how many of AMQP's came by from clients.
    """

    def __init__(self, url: str, *, refusing: bool = False, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or DEFAULT_PORTS[parts.scheme])
        self.port = free_port()
        user_info, at, _ = parts.netloc.rpartition("@")
        scheme = f"{parts.scheme}s" if tls else parts.scheme
        self.url = parts._replace(scheme=scheme, netloc=f"{user_info}{at}127.0.0.1:{self.port}").geturl()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._answering = asyncio.Event()
        self._answering.set()
        self.accepted = 0
        self.heartbeats = 0
        self._held: list[bytes] = []
        self._stuck_at = b""
        if not refusing:
            self.resume()

    def resume(self) -> None:
        """Accept connections again and let bytes flow."""
        background.run(self._listen())

    def cut(self) -> None:
        """Reset every open connection; new ones are still accepted."""
        background.run(self._cut())

    def refuse(self) -> None:
        """The server is down: reset every open connection, refuse new ones (ECONNREFUSED) until `resume`."""
        background.run(self._refuse())

    def hold(self) -> None:
        """The network is stuck: connections are kept and accepted, no byte passes until `resume`."""
        background.run(self._hold())

    def hold_answers(self) -> None:
        """What clients send still passes, nothing of what the server sends; until `resume`."""
        background.run(self._hold_answers())

    def hold_from(self, part: bytes) -> None:
        """As `hold`, from the moment that these bytes come by; they are the first to be held."""
        self._stuck_at = part

    @property
    def open_connections(self) -> int:
        return len(self._links)

    def holds(self, part: bytes) -> bool:
        """Whether these bytes have arrived since `hold`, and went no further then."""
        return any(part in chunk for chunk in self._held)

    def close(self) -> None:
        background.run(self._refuse())

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _hold_answers(self) -> None:
        self._answering.clear()

    async def _listen(self) -> None:
        self._flowing.set()
        self._answering.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)

    async def _hold(self) -> None:
        self._held.clear()
        self._flowing.clear()

    async def _cut(self) -> None:
        links = list(self._links)
        for link in links:
            link.reset()
        await asyncio.gather(*(link.gone.wait() for link in links))

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._flowing.set()
        await self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(writer)
        self._links.add(link)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
                link.writers.append(upstream_writer)
                link.pumps = asyncio.gather(
                    self._pump(reader, upstream_writer, from_client=True),
                    self._pump(upstream_reader, writer),
                )
                await link.pumps
        finally:
            link.reset()
            self._links.discard(link)
            link.gone.set()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, from_client: bool = False
    ) -> None:
        while chunk := await source.read(CHUNK):
            if from_client:
                self.heartbeats += chunk.count(HEARTBEAT)
            if self._stuck_at and self._stuck_at in chunk:
                self._stuck_at = b""
                await self._hold()
            if not self._flowing.is_set():
                self._held.append(chunk)
                await self._flowing.wait()
            if not from_client:
                await self._answering.wait()
            sink.write(chunk)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


class _Link:
    """One proxied connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        self.pumps: asyncio.Future[tuple[None, None]] | None = None
        self.gone = asyncio.Event()

    def reset(self) -> None:
        if self.pumps is not None:
            self.pumps.cancel()  # one that waits for bytes to flow again would not see the end
        for writer in self.writers:
            raw: socket.socket | None = writer.get_extra_info("socket")
            if raw is not None and not writer.is_closing():
                # Linger 0: close() sends RST, as a killed server's kernel would.
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
