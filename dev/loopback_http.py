"""A small HTTP/1.1 server for stubs: asyncio only, so that it can also hang and drop connections.

It serves clients that behave: requests with a Content-Length or without a body, no chunked uploads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.client import responses
from urllib.parse import parse_qsl, unquote, urlsplit

HOST = "127.0.0.1"
LARGEST_BODY = 4 * 1024 * 1024  # bytes
IDLE_S = 60.0  # a connection without a request is closed after this


@dataclass(frozen=True)
class Request:
    """`path` is decoded and without its query; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> object:
        """The body as JSON, or None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """A JSON response."""
        return cls(
            status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})}
        )


# None instead of a response: the connection is dropped without a word.
Handler = Callable[[Request], Awaitable[Response | None]]


class BadRequestError(Exception):
    """What came is no HTTP request that this server takes; the connection is closed."""


async def serve(handler: Handler, port: int, host: str = HOST) -> asyncio.Server:
    """Listens, on loopback unless told otherwise. Port 0 takes a free one."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _exchange(handler, reader, writer):
                pass
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away or sent nothing more
        except BadRequestError as error:
            with contextlib.suppress(OSError):
                await _write(writer, Response.of({"detail": str(error)}, 400), head=False)
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def run(name: str, handler: Handler, port: int, host: str = HOST) -> None:
    """Serves until SIGTERM or SIGINT; says where it listens."""
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, ended.set)
    server = await serve(handler, port, host)
    print(f"{name} listens on http://{host}:{port_of(server)}", flush=True)
    await ended.wait()
    server.close()  # open requests are cut off with the loop: a silence may be an hour long


async def _exchange(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """One request and its answer; whether another may follow."""
    async with asyncio.timeout(IDLE_S):
        head = await reader.readuntil(b"\r\n\r\n")
    request = _parse(head)
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > LARGEST_BODY or "transfer-encoding" in request.headers:
        raise BadRequestError(f"the body needs a Content-Length of at most {LARGEST_BODY} bytes")
    async with asyncio.timeout(IDLE_S):
        body = await reader.readexactly(int(length))
    response = await handler(Request(request.method, request.path, request.query, request.headers, body))
    if response is None:
        writer.transport.abort()
        return False
    await _write(writer, response, head=request.method == "HEAD")
    return request.headers.get("connection", "").lower() != "close"


def _parse(head: bytes) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequestError(f"no request line: {first[:80]!r}")
    method, target, _ = parts
    url = urlsplit(target)
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    return Request(method, unquote(url.path), dict(parse_qsl(url.query)), headers, b"")


async def _write(writer: asyncio.StreamWriter, response: Response, *, head: bool) -> None:
    # A stub may be told any status; those without a registered phrase go without one (RFC 9112, 4).
    lines = [
        f"HTTP/1.1 {response.status} {responses.get(response.status, '')}",
        f"Content-Length: {len(response.body)}",
    ]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head else response.body))
    await writer.drain()
