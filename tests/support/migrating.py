"""Queues that are to be migrated, with a publisher and consumers that go on meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from tests.support.vhosts import Vhost
from topology.address import AmqpAddress
from topology.declare import apply, connection
from topology.entities import Entities, compile_topology
from topology.names import gate
from topology.spec import Ladder, Topology, WorkQueue
from topology.wire import install

LADDER = Ladder(steps=2)
OLD = Topology((WorkQueue("jobs", LADDER, type="classic", classic_reason="a former release"),))
QUORUM = Topology((WorkQueue("jobs", LADDER),))
STRICT = Topology((WorkQueue("jobs", LADDER, delivery_limit=5),))
ASK_S = 0.25


def declared(vhost: Vhost, topology: Topology, **changed: dict[str, Any]) -> Entities:
    """`topology` on the broker, but with the arguments of some queues changed (None takes one away)."""
    entities = compile_topology(topology)
    for queue in entities.queues:
        for name, value in changed.get(queue.name.replace(".", "_"), {}).items():
            queue.arguments.pop(name, None)
            if value is not None:
                queue.arguments[name] = value
    apply(AmqpAddress.parse(vhost.amqp_url), entities)
    return compile_topology(topology)


class Publisher(threading.Thread):
    """Confirmed and mandatory, each message until the broker has taken it; looks at the gate, like the relay.

    `sent` are the bodies that the broker confirmed.
    """

    def __init__(self, vhost: Vhost, queue: str, *, gated: bool = True) -> None:
        super().__init__(daemon=True)
        install()
        self._vhost, self._queue, self._gated = vhost, queue, gated
        self._ending = threading.Event()
        self._asked_at, self._closed = 0.0, False
        self.sent: list[bytes] = []
        self.refusals = 0

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            try:
                with self._vhost.channel() as channel:
                    channel.confirm_delivery()
                    while not self._ending.wait(0.005):
                        if self._gated and self._is_gated():
                            continue
                        body = b"%s-%d" % (self._queue.encode(), number)
                        try:
                            channel.basic_publish("", self._queue, body, mandatory=True)
                        except (NackError, UnroutableError):
                            self.refusals += 1
                            continue
                        self.sent.append(body)
                        number += 1
            except Exception:  # noqa: BLE001 - whatever the broker does, go on
                self.refusals += 1
                self._ending.wait(0.2)

    def _is_gated(self) -> bool:
        if time.monotonic() - self._asked_at >= ASK_S:
            with connection(AmqpAddress.parse(self._vhost.amqp_url), "test") as opened:
                try:
                    opened.channel().queue_declare(gate(self._queue), passive=True)
                    self._closed = True
                except ChannelClosedByBroker as closed:
                    self._closed = closed.reply_code == 405
            self._asked_at = time.monotonic()
        return self._closed

    def end(self) -> list[bytes]:
        self._ending.set()
        self.join(20)
        assert not self.is_alive()
        return self.sent


class Worker(threading.Thread):
    """Consumes with a prefetch of 20, works for a moment, acks or rejects; consumes again when cancelled.

    `worked` counts how often each body was acknowledged.
    """

    def __init__(self, vhost: Vhost, queue: str, work_s: float = 0.002, *, reject: bool = False) -> None:
        super().__init__(daemon=True)
        install()
        self._vhost, self._queue, self._work_s, self._reject = vhost, queue, work_s, reject
        self._ending = threading.Event()
        self.worked: Counter[bytes] = Counter()
        self.cancelled = 0

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                self._consume()
            except Exception:  # noqa: BLE001 - whatever the broker does, go on
                self._ending.wait(0.05)

    def _consume(self) -> None:
        with self._vhost.channel() as channel:
            channel.basic_qos(prefetch_count=20)
            for method, _, body in channel.consume(self._queue, inactivity_timeout=0.1):
                if self._ending.is_set():
                    return
                if method is not None:
                    self._ending.wait(self._work_s)
                    if self._reject:
                        channel.basic_reject(method.delivery_tag, requeue=False)
                    else:
                        channel.basic_ack(method.delivery_tag)
                    self.worked[body] += 1
            self.cancelled += 1

    def end(self) -> Counter[bytes]:
        self._ending.set()
        self.join(20)
        assert not self.is_alive()
        return self.worked


@contextmanager
def traffic(
    vhost: Vhost, queue: str, *, workers: int = 2, work_s: float = 0.002
) -> Iterator[tuple[Publisher, list[Worker]]]:
    publisher, consuming = Publisher(vhost, queue), [Worker(vhost, queue, work_s) for _ in range(workers)]
    for thread in (publisher, *consuming):
        thread.start()
    try:
        yield publisher, consuming
    finally:
        publisher.end()
        for worker in consuming:
            worker.end()
