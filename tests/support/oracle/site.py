"""Definitions put onto a virtual host of a real broker, and what that broker says of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.vhosts import Vhost, fresh_vhost
from topology.address import AmqpAddress
from topology.declare import connection
from topology.lint.definitions import Definitions, Policy

DURABLE = 2


class Site:
    """One virtual host, used for many definitions one after the other.

    `channel` gets, consumes and publishes unconfirmed; `confirmed` waits for the broker's answer.
    """

    def __init__(self, vhost: Vhost, opened: pika.BlockingConnection) -> None:
        self.vhost = vhost
        self.connection = opened
        self._channel: BlockingChannel | None = None
        self._confirmed: BlockingChannel | None = None
        self._feeders: set[str] = set()
        self.queues: tuple[str, ...] = ()
        self._definitions = Definitions("nothing")

    @property
    def channel(self) -> BlockingChannel:
        """Opened anew after the broker has closed it for a refusal."""
        if self._channel is None or not self._channel.is_open:
            self._channel = self.connection.channel()
        return self._channel

    @property
    def confirmed(self) -> BlockingChannel:
        if self._confirmed is None or not self._confirmed.is_open:
            self._confirmed = self.connection.channel()
            self._confirmed.confirm_delivery()
        return self._confirmed

    def build(self, definitions: Definitions) -> None:
        """Make it all anew: policies first, so that each object is declared under them."""
        self.clear()
        self._definitions = definitions
        for policy in definitions.policies:
            self._put(_policy_path(self.vhost.vhost, policy), _policy_body(policy))
        for exchange in definitions.exchanges:
            self.channel.exchange_declare(
                exchange.name,
                exchange.type,
                durable=exchange.durable,
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=dict(exchange.arguments),
            )
        for queue in definitions.queues:
            self.channel.queue_declare(
                queue.name,
                durable=queue.durable,
                auto_delete=queue.auto_delete,
                arguments=dict(queue.arguments),
            )
        for binding in definitions.bindings:
            bind = (
                self.channel.queue_bind if binding.destination_type == "queue" else self.channel.exchange_bind
            )
            bind(binding.destination, binding.source, binding.routing_key, dict(binding.arguments))
        self.queues = tuple(queue.name for queue in definitions.queues)

    def clear(self) -> None:
        """Delete what `build` made and what feeds it."""
        for policy in self._definitions.policies:
            self.vhost.management.delete(_policy_path(self.vhost.vhost, policy)).raise_for_status()
        for binding in self._definitions.bindings:
            # Any other binding goes with the queue or exchange at one of its ends.
            if binding.source.startswith("amq.") and binding.destination.startswith("amq."):
                self.channel.exchange_unbind(
                    binding.destination, binding.source, binding.routing_key, dict(binding.arguments)
                )
        for queue in self._definitions.queues:
            self.channel.queue_delete(queue.name)
        for name in [exchange.name for exchange in self._definitions.exchanges] + sorted(self._feeders):
            self.channel.exchange_delete(name)
        self._definitions, self._feeders, self.queues = Definitions("nothing"), set(), ()
        # A channel remembers the quorum queues it used, and dies of one that was made anew under its name.
        for channel in (self._channel, self._confirmed):
            if channel is not None and channel.is_open:
                channel.close()

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def door(self, queue: str, key: str) -> tuple[str, str]:
        """Exchange and key by which a message with routing key `key` gets into `queue` and nowhere else."""
        if key == queue:
            return "", queue
        name = f"oracle.feeder.{queue}"
        if name not in self._feeders:
            self.channel.exchange_declare(name, "fanout", durable=True)
            self.channel.queue_bind(queue, name, "")
            self._feeders.add(name)
        return name, key

    def stuck(self, queue: str) -> int:
        """Letters that an at-least-once source keeps; the broker's figure is 5 to 10 s old."""
        found = self.vhost.queue(queue)
        return int((found or {}).get("messages_dlx", 0))

    def _put(self, path: str, body: Mapping[str, Any]) -> None:
        answer: httpx.Response = self.vhost.management.put(path, json=body)
        assert answer.is_success, f"PUT {path} {body}: {answer.status_code} {answer.text}"


@contextmanager
def open_site(amqp_url: str, management_url: str) -> Iterator[Site]:
    """A site in a virtual host of its own."""
    with fresh_vhost(amqp_url, management_url) as vhost, on_vhost(vhost) as site:
        yield site


@contextmanager
def on_vhost(vhost: Vhost) -> Iterator[Site]:
    # Not served while another connection drives: no heartbeat may be missed.
    address = replace(AmqpAddress.parse(vhost.amqp_url), heartbeat_s=0)
    with connection(address, "oracle") as opened:
        yield Site(vhost, opened)


def _policy_path(vhost: str, policy: Policy) -> str:
    kind = "operator-policies" if policy.operator else "policies"
    return f"/api/{kind}/{quote(vhost, safe='')}/{quote(policy.name, safe='')}"


def _policy_body(policy: Policy) -> dict[str, object]:
    return {
        "pattern": policy.pattern,
        "definition": dict(policy.definition),
        "apply-to": policy.apply_to,
        "priority": policy.priority,
    }
