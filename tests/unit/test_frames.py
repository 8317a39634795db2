"""Frames are cut and made as pika does it: from what a socket delivers in pieces, and of a publish."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pika.frame
import pika.spec
from hypothesis import given
from hypothesis import strategies as st

from topology.connection import _Connection
from topology.frames import publish_frames
from topology.wire import RawProperties, install

SEEDS = range(20)


class Fed(_Connection):
    """Keeps the frames that it is given instead of acting on them."""

    def __init__(self) -> None:
        self._frame_buffer = b""
        self.bytes_received = 0
        self.frames: list[Any] = []

    def _process_frame(self, frame: Any) -> None:
        self.frames.append(frame)


def stream(seed: int) -> bytes:
    choice = random.Random(seed)
    pieces = []
    for tag in range(30):
        body = choice.randbytes(choice.choice([0, 1, 80, 5_000]))
        deliver = pika.spec.Basic.Deliver("tag", tag, False, "exchange", "key")
        pieces += [
            pika.frame.Method(1, deliver).marshal(),
            pika.frame.Header(1, len(body), RawProperties(b"\x00\x00")).marshal(),
            *([pika.frame.Body(1, body).marshal()] if body else []),
            *([pika.frame.Heartbeat().marshal()] if choice.random() < 0.2 else []),
        ]
    return b"".join(pieces)


def by_pika(data: bytes) -> list[str]:
    found = []
    while data:
        size, frame = pika.frame.decode_frame(data)
        found.append(repr(frame))
        data = data[size:]
    return found


@given(
    channel=st.integers(1, 65_535),
    names=st.tuples(*[st.binary(max_size=255)] * 2),
    properties=st.binary(min_size=2, max_size=300),
    body=st.binary(max_size=400),
    body_max=st.integers(1, 130),
)
def test_a_publish_is_what_pika_makes_of_it(
    channel: int, names: tuple[bytes, bytes], properties: bytes, body: bytes, body_max: int
) -> None:
    class Kept(Fed):
        def __init__(self) -> None:
            self._body_max_length = body_max
            self.made: list[bytes] = []

        def _output_marshaled_frames(self, marshaled_frames: Sequence[bytes]) -> None:
            self.made += marshaled_frames

    theirs = Kept()
    method = pika.spec.Basic.Publish(exchange=names[0], routing_key=names[1], mandatory=True)
    theirs._send_message(channel, method, (RawProperties(properties), body))
    assert publish_frames(channel, *names, properties, body, body_max) == theirs.made


def test_pieces_of_any_size_make_the_same_frames() -> None:
    install()
    for seed in SEEDS:
        data, choice, fed = stream(seed), random.Random(seed), Fed()
        offset = 0
        while offset < len(data):
            size = choice.choice([1, 3, 7, 8, 100, 4_096, 100_000])
            fed._on_data_available(data[offset : offset + size])
            offset += size
        assert list(map(repr, fed.frames)) == by_pika(data)
        assert fed._frame_buffer == b""
        assert fed.bytes_received == len(data)


def test_a_broker_that_names_its_own_protocol_is_heard() -> None:
    fed = Fed()
    for octet in b"AMQP\x00\x00\x09\x01":
        fed._on_data_available(bytes([octet]))
    assert [type(frame) for frame in fed.frames] == [pika.frame.ProtocolHeader]


def test_nothing_is_done_with_what_follows_the_frame_at_which_the_connection_ends() -> None:
    class Ends(Fed):
        def _process_frame(self, frame: Any) -> None:
            super()._process_frame(frame)
            self._frame_buffer = b""  # as pika does when it begins anew

    fed = Ends()
    fed._on_data_available(pika.frame.Heartbeat().marshal() * 3)
    assert len(fed.frames) == 1
    assert fed._frame_buffer == b""
