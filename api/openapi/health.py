"""Health: what is shown, an example of each answer, and the operations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.openapi.operation import Answer, Body, Operation, one
from api.openapi.schema import Count, Shown


class Liveness(Shown):
    status: Literal["alive"]


class OutboxRoom(Shown):
    """Messages that wait for the broker; those due in more than a minute do not count."""

    messages: Count
    limit: Count
    full: bool


class Trouble(Shown):
    """Of the broker or the topology: jobs are accepted all the same."""

    name: str = Field(description="a queue, exchange or binding, `broker`, `management API` or `relay`")
    trouble: str


class Readiness(Shown):
    status: Literal["ready", "degraded", "not ready"]
    database: str = Field(description="`ok`, `away`, or what is wrong")
    outbox: OutboxRoom
    broker: Literal["ok", "away", "blocked"] = Field(description="blocked: by an alarm of the broker")
    paused_queues: list[str] = Field(description="those to which this process's relay publishes nothing")
    stuck_letters: int | None = Field(description="letters and retries that the broker cannot hand on")
    degraded: list[Trouble]


_READY: dict[str, Any] = {
    "status": "ready", "database": "ok", "outbox": {"messages": 0, "limit": 1_000_000, "full": False},
    "broker": "ok", "paused_queues": [], "stuck_letters": 0, "degraded": [],
}  # fmt: skip
_TROUBLE = {"name": "payments.dlq", "trouble": "the queue is missing"}
_FORMS = (
    Body(Readiness, _READY, name="ready"),
    Body(Readiness, _READY | {"status": "degraded", "degraded": [_TROUBLE]}, name="degraded"),
)
_AWAY = Body(Readiness, _READY | {"status": "not ready", "database": "away"})
_METRICS = """\
# HELP redrive_up Whether this process reaches the server.
# TYPE redrive_up gauge
redrive_up{what="database"} 1
redrive_up{what="broker"} 1
"""
OPERATIONS = {
    "GET /healthz": Operation(
        "get_liveness", one(Liveness, {"status": "alive"}, "The process answers.")
    ),
    "GET /readyz": Operation(
        "get_readiness",
        (
            Answer(200, "Jobs are accepted.", _FORMS),
            Answer(503, "No database, no schema, or a full outbox.", (_AWAY,), ("Retry-After",)),
        ),
    ),
    "GET /metrics": Operation(
        "get_metrics",
        (Answer(200, "Figures in Prometheus' text format.", (Body(None, _METRICS, "text/plain"),)),),
    ),
}  # fmt: skip
