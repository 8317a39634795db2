"""What the broker's management API says of our queues. Its counts are up to 5 s old."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx

from topology.plan.have import HaveBinding
from topology.policy_harm import COLUMNS as POLICIES
from topology.policy_harm import UNTOLD, InForce

TIMEOUT_S = 2.0
# messages_dlx: letters that a queue could not hand to its dead-letter exchange; AMQP does not show them.
_COUNTS = ("name", "messages", "messages_ready", "messages_unacknowledged", "messages_dlx", "consumers")
# In the order of Rates' fields. Quorum queues tell no head_message_timestamp (3.10.8, 4.3).
_RATES = ("publish_details", "deliver_get_details", "ack_details", "redeliver_details")
COLUMNS = ",".join((*_COUNTS, *POLICIES, *(f"message_stats.{rate}.rate" for rate in _RATES)))
BINDING = ("source", "destination", "destination_type", "routing_key", "arguments")
# Who asks meanwhile gets the same answer: the broker counts every 5 s.
FRESH_S = 0.5


class BrokerViewError(Exception):
    """The management API gave no usable answer."""


@dataclass(frozen=True)
class Rates:
    """Messages a second, as the broker measured them last; None where it did not: none came yet, or its
    statistics are off. What is dead-lettered at least once is in no queue's `publish` (3.10.8, 4.3)."""

    published: float | None = None
    delivered: float | None = None
    acknowledged: float | None = None
    redelivered: float | None = None


@dataclass(frozen=True)
class QueueCounts:
    """Messages in one queue. `stuck`: dead-lettered, but not taken by the dead-letter exchange."""

    messages: int = 0
    ready: int = 0
    unacknowledged: int = 0
    stuck: int = 0
    consumers: int = 0
    rates: Rates = Rates()
    in_force: InForce = UNTOLD


@dataclass(frozen=True)
class Ways:
    """Exchanges by name, and bindings, without those of the default exchange."""

    exchanges: frozenset[str]
    bindings: frozenset[HaveBinding]


class BrokerView:
    """A client of the management API for one vhost. `url` may hold user and password."""

    def __init__(self, url: str, vhost: str) -> None:
        parts = urlsplit(url)
        # httpx quotes a request's URL in its errors: the log-in stays out of it.
        auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._client = httpx.AsyncClient(base_url=address, auth=auth, timeout=TIMEOUT_S)
        self._vhost = quote(vhost, safe="")
        self._asking: asyncio.Task[Mapping[str, QueueCounts]] | None = None
        self._asked_at = -FRESH_S

    async def queues(self) -> Mapping[str, QueueCounts]:
        """Every queue of the vhost by name; asked once for all who want it within half a second.

        Raises:
            BrokerViewError: it cannot be reached, or refuses us.
        """
        now = asyncio.get_running_loop().time()
        if self._asking is None or (self._asking.done() and now - self._asked_at >= FRESH_S):
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(), name="broker_view")
            self._asking.add_done_callback(_heard)
        # Whoever goes away takes the answer from nobody.
        return await asyncio.shield(self._asking)

    async def ways(self) -> Ways:
        """What of the vhost's exchanges and bindings there is, asked anew.

        Raises:
            BrokerViewError: as `queues`.
        """
        with _heeding():
            exchanges = await self._get("exchanges", "name")
            bindings = await self._get("bindings", ",".join(BINDING))
            # Tens of thousands in a large topology: requests are not to wait for that.
            return await asyncio.to_thread(_ways, exchanges, bindings)

    async def _ask(self) -> Mapping[str, QueueCounts]:
        with _heeding():
            answer = await self._get("queues", COLUMNS)
            return {row["name"]: _counts(row) for row in answer.json()}

    async def _get(self, kind: str, columns: str) -> httpx.Response:
        answer = await self._client.get(f"/api/{kind}/{self._vhost}", params={"columns": columns})
        return answer.raise_for_status()

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        await self._client.aclose()


@contextmanager
def _heeding() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise BrokerViewError(f"the management API answered {error.response.status_code}") from error
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise BrokerViewError(f"the management API gave no answer: {type(error).__name__}") from error


def _ways(exchanges: httpx.Response, bindings: httpx.Response) -> Ways:
    return Ways(
        frozenset(row["name"] for row in exchanges.json()),
        frozenset(_binding(row) for row in bindings.json() if row["source"]),
    )


def _binding(row: dict[str, Any]) -> HaveBinding:
    source, destination, kind, key, arguments = (row[name] for name in BINDING)
    return HaveBinding(source, destination, kind, key, bool(arguments))


def _counts(row: dict[str, Any]) -> QueueCounts:
    # A queue that was made this moment has no counts yet.
    return QueueCounts(
        messages=row.get("messages", 0),
        ready=row.get("messages_ready", 0),
        unacknowledged=row.get("messages_unacknowledged", 0),
        stuck=row.get("messages_dlx", 0),
        consumers=row.get("consumers", 0),
        rates=Rates(*(_rate(row, each) for each in _RATES)),
        in_force=InForce.of(row),
    )


def _rate(row: dict[str, Any], name: str) -> float | None:
    found: Any = row
    for key in ("message_stats", name, "rate"):
        found = found.get(key) if isinstance(found, dict) else None  # an empty object comes as []
    return found if isinstance(found, int | float) else None


def _heard(asking: asyncio.Task[Mapping[str, QueueCounts]]) -> None:
    """An error that nobody waits for any more is not to be logged as forgotten."""
    if not asking.cancelled():
        asking.exception()
