"""What the story and the tests tell and ask the third party."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import httpx


class ThirdPartyClient:
    """Speaks to a running stub on loopback. `url` is what the jobs are given as REDRIVE_THIRD_PARTY_URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        # A proxy meant for the world outside must not be asked for 127.0.0.1.
        self._http = httpx.Client(base_url=url, timeout=10, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def fail(
        self,
        path: str,
        *steps: Mapping[str, object],
        match: Mapping[str, object] | None = None,
        method: str | None = None,
        then: Literal["ok", "repeat"] = "ok",
    ) -> None:
        """The next requests to `path` get `steps`, one each; their fields: `dev.thirdparty.rules.Step`."""
        rule = {"path": path, "steps": list(steps), "match": match, "method": method, "then": then}
        self._http.put("/_control/rules", json=rule).raise_for_status()

    def heal(self) -> None:
        """All is well again."""
        self._http.delete("/_control/rules").raise_for_status()

    def reset(self) -> None:
        """As if it had just been started."""
        self._http.post("/_control/reset").raise_for_status()

    def requests(self, path: str | None = None) -> list[dict[str, Any]]:
        """What arrived, oldest first: at (unix seconds), method, path, key, body, answered."""
        return self._list("requests", {} if path is None else {"path": path})

    def payments(self) -> list[dict[str, Any]]:
        """The bodies of the payments that were taken."""
        return self._list("payments")

    def charges(self) -> list[dict[str, Any]]:
        """The distinct charges: id, key, body."""
        return self._list("charges")

    def files(self) -> dict[str, int]:
        """Sizes in bytes by name."""
        found: dict[str, int] = self._http.get("/_control/files").raise_for_status().json()
        return found

    def _list(self, what: str, query: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            self._http.get(f"/_control/{what}", params=query).raise_for_status().json()
        )
        return found
