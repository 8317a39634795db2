"""Celery's broker connections, whose every wait for an answer ends.

py-amqp waits without end for a confirm, and for the reply to an open or a close: on a network that is stuck,
a publish would never return, nor would the clean-up after it.
"""

from __future__ import annotations

from typing import Any

import kombu
from kombu.connection import ConnectionPool, PooledConnection
from kombu.transport import pyamqp

# Seconds for one answer of the broker, and for room in the socket's buffer.
ANSWER_TIMEOUT_S = 10.0


class BoundedWait:
    """Mixed into what waits for a reply.

    Raises, instead of waiting for ever: TimeoutError, which Celery takes for a lost connection.
    """

    def wait(
        self, method: Any, callback: Any = None, timeout: float | None = None, *rest: Any, **more: Any
    ) -> Any:
        return super().wait(method, callback, timeout or ANSWER_TIMEOUT_S, *rest, **more)  # type: ignore[misc]


class BoundedChannel(BoundedWait, pyamqp.Channel):
    """A channel whose confirms and replies come in time, or raise."""


class BoundedConnection(BoundedWait, pyamqp.Connection):
    """The same for the connection's own replies."""

    Channel = BoundedChannel


class BoundedTransport:
    """Mixed into kombu's connections: they make bounded ones of py-amqp."""

    def create_transport(self) -> Any:
        transport = super().create_transport()  # type: ignore[misc]
        transport.Connection = BoundedConnection
        return transport


class BoundedPooledConnection(BoundedTransport, PooledConnection):
    """One of a pool."""


class BoundedPool(ConnectionPool):
    """Celery publishes through connections of this pool."""

    def new(self) -> BoundedPooledConnection:
        return BoundedPooledConnection(self, **dict(self.connection._info(resolve=False)))


class RedriveConnection(BoundedTransport, kombu.Connection):
    """kombu's connection, for Celery's `amqp.Connection`."""

    def Pool(self, limit: int | None = None, **options: Any) -> BoundedPool:  # noqa: N802 - kombu's name
        return BoundedPool(self, limit, **options)
