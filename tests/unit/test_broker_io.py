"""What goes to and comes from the broker in fewer system calls is what py-amqp writes and reads."""

from __future__ import annotations

import pickle
import select
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from amqp import spec
from amqp.method_framing import frame_writer
from amqp.serialization import dumps

from workers.acking import ack_all
from workers.child import Ticket
from workers.transport import WideReads

FRAMES = [b"\x03\x00\x01\x00\x00\x00\x02" + body + b"\xce" for body in (b"ab", b"cd", b"ef")]
TAGS = (1, 7, 2**40)


class _Message:
    def __init__(self, channel: Any, tag: int) -> None:
        self.channel, self.delivery_tag, self.acked = channel, tag, False

    def settled(self) -> None:
        self.acked = True


def test_a_batch_of_acks_is_what_py_amqp_writes_one_by_one() -> None:
    one_by_one: list[bytes] = []
    together: list[bytes] = []

    def record(frame: Any) -> None:
        one_by_one.append(bytes(frame))

    transport = SimpleNamespace(write=record)
    write = frame_writer(SimpleNamespace(frame_max=131_072, bytes_sent=0), transport)
    for tag in TAGS:
        write(1, 5, spec.Basic.Ack, dumps("Lb", (tag, False)), None)
    connection = SimpleNamespace(transport=SimpleNamespace(write=together.append))
    messages = [_Message(SimpleNamespace(channel_id=5, connection=connection), tag) for tag in TAGS]

    ack_all(messages, (OSError,))

    assert together == [b"".join(one_by_one)]
    assert all(message.acked for message in messages)


def test_acks_on_a_lost_connection_are_no_error_and_not_marked() -> None:
    def lost(frames: bytes) -> None:
        raise BrokenPipeError

    connection = SimpleNamespace(transport=SimpleNamespace(write=lost))
    message = _Message(SimpleNamespace(channel_id=1, connection=connection), 1)

    ack_all([message], (OSError,))

    assert not message.acked


@pytest.fixture
def reader() -> Iterator[WideReads]:
    """Three frames have come."""
    ours, brokers = socket.socketpair()
    made = WideReads("broker")
    made.sock, made.connected = ours, True
    made._setup_transport()
    brokers.sendall(b"".join(FRAMES))
    yield made
    ours.close()
    brokers.close()


def test_the_event_loop_reads_all_that_has_come_at_once(reader: WideReads) -> None:
    with reader.having_timeout(0):
        assert reader.read_frame()[2] == b"ab"
    assert not select.select([reader.sock], [], [], 0)[0]
    for rest in (b"cd", b"ef"):
        with reader.having_timeout(0):
            assert reader.read_frame()[2] == rest
    with pytest.raises(TimeoutError), reader.having_timeout(0):
        reader.read_frame()
    assert reader.sock.gettimeout() is None


@pytest.mark.parametrize("timeout_s", [None, 5])
def test_a_wait_for_one_answer_leaves_the_rest_to_the_event_loop(
    reader: WideReads, timeout_s: float | None
) -> None:
    with reader.having_timeout(timeout_s):
        assert reader.read_frame()[2] == b"ab"
    assert select.select([reader.sock], [], [], 0)[0]


def test_the_event_loop_does_not_wait_for_a_socket_with_a_timeout_of_its_own(reader: WideReads) -> None:
    reader.sock.settimeout(60)
    for body in (b"ab", b"cd", b"ef"):
        with reader.having_timeout(0):
            assert reader.read_frame()[2] == body
    with pytest.raises(TimeoutError), reader.having_timeout(0):
        reader.read_frame()
    assert reader.sock.gettimeout() == 60


def test_a_ticket_goes_to_the_pool_process_as_it_is() -> None:
    ticket = Ticket("job", uuid4(), 2, 3, suspect=True, limit_s=9.5)

    assert pickle.loads(pickle.dumps(ticket)) == ticket
