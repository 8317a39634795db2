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

    def healthy(self) -> bool:
        try:
            return self._http.get("/_received").is_success
        except httpx.HTTPError:
            return False

    def received(self) -> list[dict[str, Any]]:
        """Deliveries whose signature was right: at (unix seconds), path, delivery, body."""
        return self._list("/_received")

    def refused(self) -> list[dict[str, Any]]:
        """The others, each with its `why`."""
        return self._list("/_refused")

    def _list(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._http.get(path).raise_for_status().json()
        return found
