"""The next message of a job differs from the last in what must change, and in nothing else."""

from __future__ import annotations

import json
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from topology.headers import ATTEMPT, DUE, PUBLISH, REPLAY, Attempt
from topology.wire import Properties, properties, split
from workers.republish import again, postponed, retried

BODY = b'[[1], {"a": 2}, {"chain": null}]'
V2: dict[str, object] = {"task": "t", "id": "1", "retries": 2, "eta": None, "custom": "kept", ATTEMPT: "1.3"}
SAME: dict[str, Any] = {"attempt": Attempt(1, 4), "token": "tok", "due_ms": None}


def made(headers: dict[str, object], **more: Any) -> bytes:
    return properties(headers=headers, content_type="application/json", message_id="1", **more).encode()


def test_a_way_round_keeps_body_and_custom_headers() -> None:
    message = again(made(V2), BODY, **SAME)
    found = split(message.properties)
    assert message.body == BODY
    assert found.headers_dict() == V2 | {ATTEMPT: "1.4", PUBLISH: "tok"}
    assert found.message_id == b"1"


def test_what_the_broker_or_an_earlier_lap_wrote_is_stripped() -> None:
    old: dict[str, object] = {
        "x-death": [{"count": 9}],
        "x-first-death-queue": "q",
        "x-delivery-count": 3,
        DUE: 17,
        PUBLISH: "old",
        "CC": ["elsewhere"],
        "BCC": ["elsewhere"],
    }
    found = split(again(made(V2 | old, expiration="5", user_id="guest"), BODY, **SAME).properties)
    assert found.headers_dict() == V2 | {ATTEMPT: "1.4", PUBLISH: "tok"}
    assert (found.expiration, found.user_id) == (None, None)


def test_a_replays_token_survives() -> None:
    found = split(again(made(V2 | {REPLAY: "r"}), BODY, **SAME).properties)
    assert found.get_header(REPLAY) == "r"


def test_a_delay_over_one_lap_carries_its_due_time() -> None:
    found = split(again(made(V2), BODY, **SAME | {"due_ms": 123}).properties)
    assert found.get_header(DUE) == 123


def test_a_retry_counts_on_and_keeps_the_body() -> None:
    message = retried(made(V2), BODY, protocol=2, retries=3, **SAME)
    assert split(message.properties).headers_dict() == V2 | {"retries": 3, ATTEMPT: "1.4", PUBLISH: "tok"}
    assert message.body == BODY


def test_a_retry_with_other_arguments_has_another_body_and_loses_the_compression() -> None:
    new = b'[[9], {}, {"chain": null}]'
    raw = made(V2 | {"compression": "application/x-gzip"})
    message = retried(raw, zlib.compress(BODY), protocol=2, retries=3, arguments=new, **SAME)
    assert message.body == new
    assert split(message.properties).get_header("compression") is None


def test_a_retry_may_change_limits_expiry_and_priority() -> None:
    options = {"time_limit": 5, "expires": "2030-01-01T00:00:00+00:00", "priority": 7}
    found = split(retried(made(V2), BODY, protocol=2, retries=3, options=options, **SAME).properties)
    assert found.get_header("timelimit") == [5, None]
    assert found.get_header("expires") == "2030-01-01T00:00:00+00:00"
    assert found.priority == 7


def test_protocol_1_has_its_fields_in_the_body() -> None:
    body = json.dumps({"task": "t", "id": "1", "args": [1], "kwargs": {}, "retries": 0, "eta": "x"}).encode()
    message = retried(made({}), body, protocol=1, retries=1, arguments=b'[[2], {"k": 3}, {}]', **SAME)
    assert json.loads(message.body) == {
        "task": "t", "id": "1", "args": [2], "kwargs": {"k": 3}, "retries": 1, "eta": None,
    }  # fmt: skip


def test_a_postponed_message_loses_its_eta() -> None:
    message = postponed(made(V2 | {"eta": "2030-01-01T00:00:00+00:00"}), BODY, protocol=2, **SAME)
    assert split(message.properties).get_header("eta") is None


@given(
    st.dictionaries(st.text("abcdef", min_size=1), st.integers(-(2**62), 2**62) | st.text() | st.booleans())
)
def test_foreign_headers_keep_their_bytes(headers: dict[str, Any]) -> None:
    raw = made(headers)
    before = set(split(raw).headers or ())
    after: Properties = split(again(raw, BODY, **SAME).properties)
    assert {e for e in after.headers or () if e.key not in (ATTEMPT.encode(), PUBLISH.encode())} == before
