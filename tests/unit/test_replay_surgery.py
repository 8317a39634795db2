"""A replayed message differs from the letter in what is named, and in nothing else."""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.headers import Attempt
from topology.republish import ended_by_its_body, for_replay
from topology.wire import HeaderEntry, Properties, encode_value, split

DEATHS = [{"queue": "q", "reason": "rejected", "count": 3}]
DROPPED = {
    "x-death": DEATHS, "x-first-death-queue": "q", "x-first-death-reason": "rejected",
    "x-first-death-exchange": "",
    "x-last-death-queue": "q", "x-last-death-reason": "rejected", "x-last-death-exchange": "",
    "x-delivery-count": 3, "x-acquired-count": 4, "CC": ["a"], "BCC": ["b"], "expires": "2026-01-01T00:00:00",
    "redrive-due": 17,
}  # fmt: skip
OWN = ("retries", "redrive-attempt", "redrive-replay")
_RAW = st.one_of(
    st.binary(max_size=20).map(lambda b: b"S" + struct.pack(">I", len(b)) + b),
    st.binary(max_size=20).map(lambda b: b"x" + struct.pack(">I", len(b)) + b),
    st.binary(min_size=8, max_size=8).map(lambda b: b"d" + b),
    st.binary(min_size=8, max_size=8).map(lambda b: b"T" + b),
    st.binary(min_size=4, max_size=4).map(lambda b: b"f" + b),
    st.just(b"V"),
    st.just(encode_value({"nested": [1, None, {"deep": 0.5}]})),
)
_KEYS = st.binary(min_size=1, max_size=12).filter(lambda key: key.decode("latin-1") not in {*DROPPED, *OWN})
_SHORT = st.none() | st.binary(max_size=30)


@given(
    headers=st.dictionaries(_KEYS, _RAW, max_size=6),
    dropped=st.sets(st.sampled_from(sorted(DROPPED))),
    texts=st.fixed_dictionaries(
        dict.fromkeys(("content_type", "correlation_id", "reply_to", "message_id", "type", "app_id"), _SHORT)
    ),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    expiration=_SHORT,
    user_id=_SHORT,
)
def test_everything_not_named_keeps_its_bytes_and_its_place(
    headers: dict[bytes, bytes], dropped: set[str], texts: dict[str, bytes | None], timestamp: int | None,
    expiration: bytes | None, user_id: bytes | None,
) -> None:  # fmt: skip
    kept = tuple(HeaderEntry(key, value) for key, value in headers.items())
    named = tuple(HeaderEntry(name.encode(), encode_value(DROPPED[name])) for name in sorted(dropped))
    letter = Properties(
        headers=kept[:2] + named + kept[2:], timestamp=timestamp, expiration=expiration, user_id=user_id,
        **texts,  # type: ignore[arg-type]
    )  # fmt: skip

    raw = for_replay(letter.encode(), token="t", attempt=None)

    ours = HeaderEntry(b"redrive-replay", encode_value("t"))
    expected = Properties(headers=(*kept, ours), timestamp=timestamp, **texts)  # type: ignore[arg-type]
    assert raw == expected.encode()


def test_our_headers_start_afresh() -> None:
    letter = Properties().with_header("retries", 4).with_header("redrive-attempt", "1.5")
    letter = letter.with_header("redrive-replay", "old")

    raw = split(for_replay(letter.encode(), token="new", attempt=Attempt(2, 1)))

    assert raw.headers_dict() == {"retries": 0, "redrive-attempt": "2.1", "redrive-replay": "new"}


def test_a_message_that_is_not_ours_gets_the_token_alone() -> None:
    raw = split(for_replay(Properties(message_id=b"m").encode(), token="t", attempt=None))
    assert raw.headers_dict() == {"redrive-replay": "t"}
    assert raw.message_id == b"m"


@pytest.mark.parametrize(
    "body",
    [
        rb'{"task": "t", "id": "i", "expires": "2020-01-01T00:00:00"}',
        rb'{"task": "t", "id": "i", "exp\u0069res": "2020-01-01T00:00:00"}',
    ],
    ids=["plain", "escaped"],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_what_its_body_says_is_over_is_known_however_it_is_written(body: bytes, compressed: bool) -> None:
    headers = {"compression": "gzip"} if compressed else {}
    message = Properties(content_type=b"application/json", content_encoding=b"utf-8").with_headers(headers)
    sent = zlib.compress(body) if compressed else body
    assert "it expired at 2020-01-01" in str(ended_by_its_body(message, sent, datetime.now(UTC)))
    later = sent if compressed else body.replace(b"2020", b"2999")
    before = datetime(2019, 1, 1, tzinfo=UTC)
    assert ended_by_its_body(message, later, before) is None


def test_a_message_that_is_no_task_is_not_over() -> None:
    message = Properties(content_type=b"application/json")
    for body in (b"", b"{}", b'{"expires": "2020"}', rb'{"\ud800": 1}', b'["expires", 1]'):
        assert ended_by_its_body(message, body, datetime.now(UTC)) is None
