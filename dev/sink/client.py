"""What the story and the tests ask the sink."""

from __future__ import annotations

from typing import Any

import httpx


class SinkClient:
    """Speaks to a running sink on loopback."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=10, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def fail(self, *statuses: int) -> None:
        """The next deliveries that are signed right get these answers, one each."""
        self._http.put("/_failures", json=statuses).raise_for_status()

    def received(self) -> list[dict[str, Any]]:
        """Deliveries that were taken: at (unix seconds), path, delivery, body."""
        return self._list("/_received")

    def failed(self) -> list[dict[str, Any]]:
        """Those that were to fail, each with what was `answered`."""
        return self._list("/_failed")

    def refused(self) -> list[dict[str, Any]]:
        """Those with a wrong signature, each with its `why`."""
        return self._list("/_refused")

    def _list(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._http.get(path).raise_for_status().json()
        return found
