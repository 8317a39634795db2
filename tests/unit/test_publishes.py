"""A publish carries its token where a return would show it."""

from __future__ import annotations

import pytest

from topology.broker_errors import NotPublishable
from topology.messages import Message
from topology.publishes import Publish, check
from topology.wire import HeaderEntry, Properties, encode_value, properties

REPLAY, PUBLISH = b"redrive-replay", b"redrive-publish"


def publish(*headers: tuple[bytes, object], token: str = "t") -> Publish:
    entries = tuple(HeaderEntry(name, encode_value(value)) for name, value in headers)
    return Publish("", "orders", Message(Properties(headers=entries).encode(), b""), token)


@pytest.mark.parametrize("name", [REPLAY, PUBLISH])
def test_its_token_stands_in_either_header(name: bytes) -> None:
    check(publish((b"a", 1), (name, "t"), (b"z", None)))
    check(publish((REPLAY, "another"), (PUBLISH, "t")))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"a", "t"),),
        ((REPLAY, "T"), (PUBLISH, "tt")),
        ((PUBLISH, b"t"),),
        ((PUBLISH, "first"), (PUBLISH, "t")),  # RabbitMQ goes by the first
    ],
)
def test_a_message_whose_return_nobody_could_match_is_refused(
    headers: tuple[tuple[bytes, object], ...],
) -> None:
    with pytest.raises(NotPublishable, match="is its token 't'"):
        check(publish(*headers))


def test_what_would_end_the_connection_is_refused() -> None:
    good = publish((PUBLISH, "t"))
    raw = good.message.properties
    for bad in (
        good._replace(routing_key="k" * 256),
        good._replace(message=Message(raw[:-1], b"")),
        good._replace(token="\ud800"),
    ):
        with pytest.raises(NotPublishable):
            check(bad)


def test_properties_that_were_cut_before_are_not_cut_again() -> None:
    check(publish(token="t")._replace(cut=properties(headers={"redrive-publish": "t"})))
