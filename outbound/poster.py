"""One POST to a destination that somebody named, within a time, its answer read no further than needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass

import httpx

from outbound.destination import Destination
from outbound.reach import Reach, Resolve, SystemResolver, UnresolvedError

# Of an answer's body nothing is kept; so much is taken that its sender seldom sees a reset.
MAX_ANSWER = 65_536
DRAIN_S = 1.0
MOST_ADDRESSES = 3


class NoAnswerError(Exception):
    """Nobody answered, or nobody knows. The message quotes nothing of the URL but its host."""


@dataclass(frozen=True)
class Answer:
    """`retry_after`: that header, as it came."""

    status: int
    retry_after: str | None = None

    @property
    def is_taken(self) -> bool:
        return 200 <= self.status < 300


class Poster:
    """Follows no redirect, uses no proxy of the environment, keeps no cookie and no connection: a kept one
    was verified for another name at the same address. Certificates are checked against `SSL_CERT_FILE`, else
    certifi's.
    """

    def __init__(self, reach: Reach, timeout_s: float, resolve: Resolve | None = None) -> None:
        """Args:
        timeout_s: for each step (connect, write, read); `longest_s` for all.
        resolve: other than the system's resolver.
        """
        self.longest_s = 2 * timeout_s
        self._reach = reach
        self._system = SystemResolver()
        self._resolve = resolve or self._system
        self._timeout = httpx.Timeout(timeout_s)
        self._transport = httpx.AsyncHTTPTransport(
            verify=httpx.create_ssl_context(),
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def post(self, to: Destination, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send it once.

        Raises:
            RefusedError: it may not be reached; nothing was sent.
            NoAnswerError: it was sent or not.
        """
        try:
            async with asyncio.timeout(self.longest_s):
                *others, last = (await self._reach.addresses(to, self._resolve))[:MOST_ADDRESSES]
                for address in others:
                    with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                        return await self._send(to, address, body, headers)
                return await self._send(to, last, body, headers)
        except UnresolvedError as error:
            raise NoAnswerError(str(error)) from None
        except TimeoutError:
            raise NoAnswerError(f"no answer within {self.longest_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}".rstrip(": ")) from None

    async def close(self) -> None:
        self._system.close()
        await self._transport.aclose()

    async def _send(self, to: Destination, address: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        host = f"[{address}]" if ":" in address else address
        request = httpx.Request(
            "POST",
            f"{to.scheme}://{host}:{to.port}{to.target}",
            content=body,
            headers={"host": to.authority, "accept-encoding": "identity", **headers},
            # Over TLS: what the certificate must name.
            extensions={"timeout": self._timeout.as_dict(), "sni_hostname": to.host},
        )
        answer = await self._transport.handle_async_request(request)
        async with aclosing(answer):
            with suppress(httpx.HTTPError, TimeoutError):  # it has answered, whatever comes of the rest
                async with asyncio.timeout(DRAIN_S):
                    await _drain(answer)
            return Answer(answer.status_code, answer.headers.get("retry-after"))


async def _drain(answer: httpx.Response) -> None:
    taken = 0
    async for piece in answer.aiter_raw():
        taken += len(piece)
        if taken >= MAX_ANSWER:
            return
