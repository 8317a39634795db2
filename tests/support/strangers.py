"""Messages of programs that know nothing of Celery: every field, headers of every type, names given twice."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.support.deliveries import DEEP, VALUES, drawn, generated
from topology.messages import Message
from topology.wire import HeaderEntry, Properties, encode_value

_NAMES = st.sampled_from([
    b"k", b"k", b"retries", b"expires", b"redrive-replay", b"redrive-due", b"x-mine", b"x-delay", b"\xff\xfe",
    b"n\x00l", b"", b"N" * 128, "ü".encode(),
])  # fmt: skip
_ENTRIES = st.lists(st.tuples(_NAMES, VALUES | DEEP), max_size=6)
_SHORT = st.none() | st.binary(max_size=30) | st.sampled_from([b"", b"\xff", b"a\x00b", b"x" * 255])
_DEATHS = [{"queue": "orders", "reason": "rejected", "count": 999, "exchange": "", "routing-keys": []}]
# What is taken off, added to some.
_TAKEN_OFF: st.SearchStrategy[list[tuple[bytes, object]]] = st.sampled_from([
    [], [(b"CC", ["elsewhere"])], [(b"CC", ["a"]), (b"BCC", ["b"])], [(b"x-death", _DEATHS)],
    [(b"x-first-death-queue", "orders"), (b"x-last-death-reason", "expired")], [(b"x-delivery-count", 7)],
])  # fmt: skip


@dataclass(frozen=True)
class Stranger:
    properties: Properties
    body: bytes


@st.composite
def _strangers(draw: st.DrawFn, user: bytes) -> Stranger:
    entries = draw(_ENTRIES) + [(key, encode_value(value)) for key, value in draw(_TAKEN_OFF)]
    headers = tuple(HeaderEntry(*entry) for entry in entries)
    return Stranger(
        Properties(
            content_type=draw(_SHORT),
            content_encoding=draw(_SHORT),
            headers=headers or draw(st.sampled_from([None, ()])),
            delivery_mode=draw(st.sampled_from([None, 1, 2])),  # RabbitMQ 3.10 refuses others
            priority=draw(st.none() | st.integers(0, 255)),
            correlation_id=draw(_SHORT),
            reply_to=draw(_SHORT),
            expiration=draw(st.sampled_from([None, b"3600000"])),
            timestamp=draw(st.none() | st.integers(0, 2**64 - 1)),
            type=draw(_SHORT),
            user_id=draw(st.sampled_from([None, user])),
            app_id=draw(_SHORT),
            cluster_id=draw(_SHORT),
        ),
        draw(st.binary(max_size=60)),
    )


def strangers(count: int, number: int, *, user: str) -> list[Stranger]:
    """The same for the same `number`. `user`: who publishes them; no other `user_id` is taken by a broker."""
    return drawn(_strangers(user.encode()), count, number)


def _sound(properties: Properties) -> Properties:
    """Without a death history that is a list, of what may be no tables."""
    kept = tuple(
        entry for entry in properties.headers or () if entry.key != b"x-death" or entry.value[:1] != b"A"
    )
    return properties._replace(headers=kept) if properties.headers else properties


def any_kind(count: int, number: int, *, user: str, odd_deaths: bool) -> list[Message]:
    """For the queue `orders`: half of them bent task messages of both protocols, half of other programs.

    Args:
        odd_deaths: also death histories that are none. RabbitMQ 3.10.8 loses the process that dead-letters
            such a message, again and again until all quorum queues of the node are down.
    """
    tasks = [
        Message((each.properties if odd_deaths else _sound(each.properties)).encode(), each.body)
        for each in generated(count // 2, ["orders.place", "orders.gone"], number)
    ]
    others = []
    for place, each in enumerate(strangers(count - len(tasks) - 1, number, user=user)):
        # Without a message id it is the body that tells one from the other.
        id_ = None if place % 3 == 0 else b"s-%d:\xff" % place
        others.append(Message(each.properties._replace(message_id=id_).encode(), b"%d:" % place + each.body))
    return [*tasks, *others, Message(Properties().encode(), b"")]
