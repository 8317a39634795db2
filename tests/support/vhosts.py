"""One RabbitMQ virtual host for each test."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import NackError

from tests.support.kept import ask
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import connection
from topology.entities import compile_topology
from topology.spec import Topology


@dataclass(frozen=True)
class Vhost:
    """A virtual host of one test. `management` is an httpx client of the server, logged in."""

    amqp_url: str
    management_url: str
    vhost: str
    management: httpx.Client

    def queue(self, name: str) -> dict[str, Any] | None:
        """What the management API says of a queue, or None. Its counts are up to 5 s old."""
        answer = self.management.get(f"/api/queues/{quote(self.vhost, safe='')}/{quote(name, safe='')}")
        if answer.status_code == 404:
            return None
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def get(self, queue: str, count: int = 1, *, keep: bool = False) -> list[dict[str, Any]]:
        """Take up to `count` messages (payload base64) off a queue, or look at them and `keep` them there."""
        answer = self.management.post(
            f"/api/queues/{quote(self.vhost, safe='')}/{quote(queue, safe='')}/get",
            json={
                "count": count,
                "ackmode": "ack_requeue_true" if keep else "ack_requeue_false",
                "encoding": "base64",
            },
        )
        messages: list[dict[str, Any]] = answer.raise_for_status().json()
        return messages

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """An AMQP channel on a connection of its own.

        What was published without confirms and is not in its queue when the channel closes may never come
        there: a quorum queue may hear that its publisher is gone before it has what that sent.
        """
        with connection(AmqpAddress.parse(self.amqp_url), "test") as opened:
            yield opened.channel()

    def depth(self, queue: str) -> int:
        """Messages ready in a queue, asked of the broker over AMQP."""
        (method,) = self._looked_at([queue])
        return int(method.message_count)

    def depths(self, queues: Iterable[str]) -> dict[str, int]:
        names = list(queues)
        looked_at = zip(names, self._looked_at(names), strict=True)
        return {name: int(method.message_count) for name, method in looked_at}

    def consumers(self, queue: str) -> int:
        (method,) = self._looked_at([queue])
        return int(method.consumer_count)

    def _looked_at(self, queues: Iterable[str]) -> list[Any]:
        def question(opened: BlockingConnection) -> list[Any]:
            channel = opened.channel()
            found = [channel.queue_declare(name, passive=True).method for name in queues]
            channel.close()
            return found

        return ask(
            self.amqp_url,
            lambda: connection(AmqpAddress.parse(self.amqp_url), "test"),
            question,
            lambda opened, _: not opened.is_open,
        )

    def publish(self, queue: str, body: bytes, properties: Any = None) -> None:
        """Confirmed, straight to a queue, as any program with the broker's password may."""
        with self.channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", queue, body, properties, mandatory=True)

    def is_full(self, queue: str) -> bool:
        """Publishes one message; whether the queue refuses it."""
        try:
            self.publish(queue, b"fills it")
        except NackError:
            return True
        return False

    def purge(self, topology: Topology) -> None:
        """Every queue of a topology is empty of ready messages."""
        with self.channel() as channel:
            for queue in compile_topology(topology).queues:
                channel.queue_purge(queue.name)


@contextmanager
def fresh_vhost(amqp_url: str, management_url: str) -> Iterator[Vhost]:
    """A new vhost in which the user of `amqp_url` may do everything; deleted afterwards with all it holds."""
    name = f"test-{secrets.token_hex(6)}"
    parts = urlsplit(amqp_url)
    user = unquote(parts.username or "guest")
    with httpx.Client(base_url=management_url, timeout=30, verify=False) as management:  # plain HTTP
        management.put(f"/api/vhosts/{name}").raise_for_status()
        try:
            rights = {"configure": ".*", "write": ".*", "read": ".*"}
            management.put(f"/api/permissions/{name}/{quote(user, safe='')}", json=rights).raise_for_status()
            eventually(lambda: _runs(management, name), 30, f"vhost {name} runs on the broker")
            yield Vhost(parts._replace(path=f"/{name}").geturl(), management_url, name, management)
        finally:
            eventually(lambda: _deleted(management, name), 60, f"vhost {name} is deleted")


def broker_version(management_url: str) -> tuple[int, int]:
    """(major, minor) of the broker."""
    overview = httpx.get(f"{management_url}/api/overview", timeout=30).raise_for_status().json()
    major, minor = str(overview["rabbitmq_version"]).split(".")[:2]
    return int(major), int(minor)


def _runs(management: httpx.Client, name: str) -> bool:
    state: dict[str, str] = management.get(f"/api/vhosts/{name}").raise_for_status().json()["cluster_state"]
    return set(state.values()) == {"running"}


def _deleted(management: httpx.Client, name: str) -> bool:
    # A broker busy with many quorum queues may answer 500 to the first try.
    return management.delete(f"/api/vhosts/{name}").status_code in (204, 404)
