"""The third party that the sample jobs call, and the three kinds of bad answer that matter to a retry."""

from __future__ import annotations

import functools
import os
from typing import Any

import httpx

from workers.retry_after import retry_after_s
from workers.settings import ThirdPartySettings


class ThirdPartyError(Exception):
    """The third party did not do what was asked."""


class TransientError(ThirdPartyError):
    """It may work later: no answer in time, no connection, or a 5xx."""


class RateLimitedError(ThirdPartyError):
    """429: not before `retry_after_s` seconds."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"rate limited: retry after {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class PermanentError(ThirdPartyError):
    """Another 4xx: the same request will be refused again."""


class Client:
    """Requests with a timeout; every bad end is one of the three errors above."""

    def __init__(self, settings: ThirdPartySettings) -> None:
        self._http = httpx.Client(base_url=settings.third_party_url, timeout=settings.third_party_timeout_s)

    def get(self, path: str) -> dict[str, Any]:
        return self._json(self._request("GET", path))

    def post(self, path: str, body: dict[str, Any], *, key: str | None = None) -> dict[str, Any]:
        """Args: key: sent as Idempotency-Key."""
        headers = {"Idempotency-Key": key} if key else {}
        return self._json(self._request("POST", path, json=body, headers=headers))

    def put_file(self, path: str, content: bytes) -> None:
        self._request("PUT", path, content=content)

    def exists(self, path: str) -> bool:
        return self._request("HEAD", path, missing_is_fine=True).status_code != httpx.codes.NOT_FOUND

    def url(self, path: str) -> str:
        return f"{self._http.base_url}".rstrip("/") + path

    def _request(
        self, method: str, path: str, *, missing_is_fine: bool = False, **kwargs: Any
    ) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **kwargs)
        except httpx.TransportError as error:
            raise TransientError(f"{method} {path}: {type(error).__name__}: {error}") from error
        status = answer.status_code
        if status == httpx.codes.TOO_MANY_REQUESTS:
            raise RateLimitedError(retry_after_s(answer.headers.get("Retry-After")))
        if status >= 500:
            raise TransientError(f"{method} {path}: {status}")
        if status >= 400 and not (missing_is_fine and status == httpx.codes.NOT_FOUND):
            raise PermanentError(f"{method} {path}: {status}")
        return answer

    @staticmethod
    def _json(answer: httpx.Response) -> dict[str, Any]:
        try:
            body = answer.json()
        except ValueError as error:
            raise TransientError(f"{answer.request.url.path}: the answer is no JSON") from error
        return body if isinstance(body, dict) else {"value": body}


def client(settings: ThirdPartySettings) -> Client:
    """This process's client: connections do not survive a fork."""
    return _client(os.getpid(), settings)


@functools.cache
def _client(pid: int, settings: ThirdPartySettings) -> Client:
    return Client(settings)
