"""What a canvas hangs on survives every way round the ladder, in the messages that Celery itself makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps

from topology.headers import ATTEMPT, DUE, PUBLISH, Attempt
from topology.messages import Message
from topology.wire import properties, split
from workers.republish import again, postponed, retried

APP = Celery("plain", broker="memory://", set_as_current=False)
NAMES = st.text("abc-é", min_size=1, max_size=8)
SIGNATURES = st.builds(
    lambda task, args, options: APP.signature(task, args=args, options=options),
    NAMES, st.lists(st.integers(), max_size=2), st.fixed_dictionaries({}, optional={"task_id": NAMES}),
)  # fmt: skip
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "callbacks": st.lists(SIGNATURES, max_size=2),
        "errbacks": st.lists(SIGNATURES, max_size=2),
        "chain": st.lists(SIGNATURES, max_size=3),
        "chord": SIGNATURES,
        "group_id": NAMES,
        "group_index": st.integers(0, 9),
        "root_id": NAMES,
        "parent_id": NAMES,
        "reply_to": NAMES,
        "shadow": NAMES,
        "expires": st.just("2999-01-01T00:00:00+00:00"),
        "time_limit": st.integers(1, 900),
        "retries": st.integers(0, 5),
        "ignore_result": st.booleans(),
        "replaced_task_nesting": st.integers(0, 3),
        "stamped_headers": st.just(["stamp", "other"]),
    },
)
Lap = Callable[[bytes, bytes, Attempt], Message]
LAPS: dict[str, Lap] = {
    "again": lambda raw, body, attempt: again(raw, body, attempt=attempt, token="t", due_ms=None),
    "postponed": lambda raw, body, attempt: postponed(
        raw, body, protocol=2, attempt=attempt, token="t", due_ms=7
    ),
    "retried": lambda raw, body, attempt: retried(
        raw, body, protocol=2, attempt=attempt, token="t", due_ms=None, retries=3
    ),
}
# Of the one way round, or of the attempt.
CHANGED = {"retries", "eta", ATTEMPT, PUBLISH, DUE}


@pytest.mark.parametrize("lap", LAPS.values(), ids=LAPS)
@given(options=OPTIONS, priority=st.none() | st.integers(0, 255))
def test_every_field_of_a_canvas_survives(lap: Lap, options: dict[str, Any], priority: int | None) -> None:
    stamps = {"stamp": ["a"], "other": "b"} if "stamped_headers" in options else {}
    made = APP.amqp.as_task_v2("job", "t", (1,), {"a": "é"}, **options, **stamps)
    body = dumps(made.body).encode()
    headers = json.loads(dumps(made.headers | {"custom": "kept"}))
    sent = properties(
        headers=headers, priority=priority, content_type="application/json", content_encoding="utf-8",
        correlation_id=made.properties["correlation_id"], reply_to=made.properties["reply_to"] or None,
    )  # fmt: skip

    raw = sent.encode()
    for number in range(2, 5):
        message = lap(raw, body, Attempt(1, number))
        raw = message.properties
        found = split(raw)
        assert json.loads(message.body) == json.loads(body)
        kept = {name: value for name, value in found.headers_dict().items() if name not in CHANGED}
        assert kept == {name: value for name, value in headers.items() if name not in CHANGED}
        assert found.headers_dict()[ATTEMPT] == f"1.{number}"
        for name in ("priority", "correlation_id", "reply_to", "content_type", "content_encoding"):
            assert getattr(found, name) == getattr(sent, name)
