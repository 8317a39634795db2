"""What the broker's management API says of our queues. Its counts are up to 5 s old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx

TIMEOUT_S = 2.0
# messages_dlx: letters that a queue could not hand to its dead-letter exchange; AMQP does not show them.
COLUMNS = "name,messages,messages_ready,messages_unacknowledged,messages_dlx,consumers"


class BrokerViewError(Exception):
    """The management API gave no usable answer."""


@dataclass(frozen=True)
class QueueCounts:
    """Messages in one queue. `stuck`: dead-lettered, but not taken by the dead-letter exchange."""

    messages: int = 0
    ready: int = 0
    unacknowledged: int = 0
    stuck: int = 0
    consumers: int = 0


class BrokerView:
    """A client of the management API for one vhost. `url` may hold user and password."""

    def __init__(self, url: str, vhost: str) -> None:
        parts = urlsplit(url)
        # httpx quotes a request's URL in its errors: the log-in stays out of it.
        auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._client = httpx.AsyncClient(base_url=address, auth=auth, timeout=TIMEOUT_S)
        self._path = f"/api/queues/{quote(vhost, safe='')}"

    async def queues(self) -> dict[str, QueueCounts]:
        """Every queue of the vhost by name.

        Raises:
            BrokerViewError: it cannot be reached, or refuses us.
        """
        try:
            answer = await self._client.get(self._path, params={"columns": COLUMNS})
            answer.raise_for_status()
            return {row["name"]: _counts(row) for row in answer.json()}
        except httpx.HTTPStatusError as error:
            raise BrokerViewError(f"the management API answered {error.response.status_code}") from error
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise BrokerViewError(f"the management API gave no answer: {type(error).__name__}") from error

    async def close(self) -> None:
        await self._client.aclose()


def _counts(row: dict[str, Any]) -> QueueCounts:
    # A queue that was made this moment has no counts yet.
    return QueueCounts(
        messages=row.get("messages", 0),
        ready=row.get("messages_ready", 0),
        unacknowledged=row.get("messages_unacknowledged", 0),
        stuck=row.get("messages_dlx", 0),
        consumers=row.get("consumers", 0),
    )
