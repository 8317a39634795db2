"""One POST of an alert, within a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx

from dlq_consumer.channels.channel import DeliveryError


class Poster:
    """Posts to one URL. It may hold a secret of the receiver's: no error quotes it."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._client = httpx.AsyncClient(timeout=timeout_s, follow_redirects=False)
        # The client's timeout is per read; a receiver that trickles must end too.
        self.longest_s = 2 * timeout_s

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Raises DeliveryError, also where the answer is no 2xx."""
        try:
            async with asyncio.timeout(self.longest_s):
                answer = await self._client.post(self._url, content=body, headers=dict(headers))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise DeliveryError(
                f"{type(error).__name__}: {error}".replace(self._url, "<url>").rstrip(": ")
            ) from None
        if not answer.is_success:
            raise DeliveryError(f"the receiver answered {answer.status_code}")

    async def close(self) -> None:
        await self._client.aclose()
