"""POSTs to servers on loopback: a name is looked up once, judged, and connected to where it was judged."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dev.loopback_http import Request, Response, port_of, serve
from outbound.destination import Destination
from outbound.poster import Answer, NoAnswerError, Poster
from outbound.reach import Reach, RefusedError, SystemResolver, UnresolvedError
from tests.support.certificates import certificate

pytestmark = pytest.mark.anyio
ALLOWED = "127.0.0.2"
HERE = "127.0.0.1"


@dataclass
class Names:
    """A resolver whose owner changes his mind: each look-up has the next answer, the last one for ever."""

    answers: list[list[str]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


@asynccontextmanager
async def listening(
    host: str, answer: Response | None = None, port: int = 0
) -> AsyncIterator[tuple[int, list[Request]]]:
    taken: list[Request] = []

    async def handle(request: Request) -> Response | None:
        taken.append(request)
        return answer

    server = await serve(handle, port, host)
    try:
        yield port_of(server), taken
    finally:
        server.close()


async def post(poster: Poster, url: str) -> Answer:
    try:
        return await poster.post(Destination.parse(url), b"{}", {"x": "y"})
    finally:
        await poster.close()


async def test_a_name_that_changes_its_mind_is_refused_and_never_connected_to() -> None:
    names = Names([[ALLOWED], [HERE], [ALLOWED, HERE]])
    reach = Reach.allowing([ALLOWED])
    async with (
        listening(ALLOWED, Response.of({})) as (port, taken),
        listening(HERE, port=port) as (_, inside),
    ):
        url = f"http://rebinding.example:{port}/hook?k=v"
        assert await post(Poster(reach, 5, names), url) == Answer(200)
        assert names.asked == ["rebinding.example"], "looked up once"
        (request,) = taken
        assert (request.headers["host"], request.path, request.query) == (
            f"rebinding.example:{port}",
            "/hook",
            {"k": "v"},
        )
        for _ in range(2):  # another address, and one beside the right one
            with pytest.raises(RefusedError, match=r"127\.0\.0\.1 is loopback"):
                await post(Poster(reach, 5, names), url)
        assert (len(taken), inside) == (1, [])


async def test_an_allowed_name_may_lead_anywhere_and_localhost_by_the_system_is_refused() -> None:
    async with listening(HERE, Response.of({})) as (port, taken):
        with pytest.raises(RefusedError):
            await post(Poster(Reach(), 5), f"https://localhost:{port}/")
        answer = await post(Poster(Reach.allowing(["localhost"]), 5), f"http://localhost:{port}/")
        assert (answer.status, len(taken)) == (200, 1)
        system = SystemResolver()
        assert "127.0.0.1" in await system("localhost", port)
        with pytest.raises(UnresolvedError):
            await system("nowhere.invalid", port)
        system.close()


async def test_of_several_addresses_another_is_tried_where_nobody_listens() -> None:
    async with listening(HERE, Response.of({})) as (port, taken):
        names = Names([["127.0.0.9", HERE]])
        assert (
            await post(Poster(Reach.allowing(["h.example"]), 5, names), f"http://h.example:{port}/")
        ).is_taken
        assert len(taken) == 1


async def test_redirects_are_answers_and_proxies_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = Response(
        302, headers={"Location": "http://169.254.169.254/", "Retry-After": "7", "Set-Cookie": "a=b"}
    )
    async with listening(HERE, away) as (port, taken), listening(HERE) as (other, proxied):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{other}")
        poster = Poster(Reach.allowing([HERE]), 5)
        for _ in range(2):
            to = Destination.parse(f"http://127.0.0.1:{port}/")
            assert await poster.post(to, b"{}", {}) == Answer(302, "7")
        await poster.close()
        assert (len(taken), proxied) == (2, [])
        assert "cookie" not in taken[1].headers


async def test_an_endless_answer_is_cut_off_and_silence_ends() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                await writer.drain()
        except OSError:
            writer.close()

    server = await asyncio.start_server(endless, HERE, 0)
    poster = Poster(Reach.allowing([HERE]), 5)
    assert await post(poster, f"http://127.0.0.1:{port_of(server)}/") == Answer(200)
    server.close()
    with socket.create_server((HERE, 0)) as silent, pytest.raises(NoAnswerError, match="ReadTimeout"):
        await post(Poster(Reach.allowing([HERE]), 0.3), f"http://127.0.0.1:{silent.getsockname()[1]}/")
    with pytest.raises(NoAnswerError) as dropped:
        async with listening(HERE, None) as (port, _):
            await post(Poster(Reach.allowing([HERE]), 5), f"http://127.0.0.1:{port}/secret")
    assert "secret" not in str(dropped.value)


async def test_the_certificate_must_name_the_host_and_not_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path, names="DNS:hooks.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(made.trusted))
    asked: list[str | None] = []
    context = made.context()
    context.sni_callback = lambda _socket, name, _context: asked.append(name)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, HERE, 0, ssl=context)
    port = port_of(server)
    reach, names = Reach.allowing(["hooks.example", "other.example"]), Names([[HERE]])
    assert await post(Poster(reach, 5, names), f"https://hooks.example:{port}/") == Answer(204)
    with pytest.raises(NoAnswerError, match="other"):
        await post(Poster(reach, 5, names), f"https://other.example:{port}/")
    assert asked == ["hooks.example", "other.example"]
    server.close()
