"""Celery's broker connections, whose every wait for an answer ends.

py-amqp waits without end for a confirm, and for the reply to an open or a close: on a network that is stuck,
a publish would never return, nor would the clean-up after it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import kombu
from amqp.transport import TCPTransport
from kombu.connection import ConnectionPool, PooledConnection
from kombu.transport import pyamqp

# Seconds for one answer of the broker, and for room in the socket's buffer.
ANSWER_TIMEOUT_S = 10.0


# Several messages in one read; small, since py-amqp copies what is left for each part of a frame.
READ_BYTES = 4096


class WideReads(TCPTransport):
    """Reads what has come, where py-amqp makes nine system calls for a message and more for timeouts.

    Only for the event loop, which reads until nothing is left, and does so without blocking. A wait for one
    answer reads no further than that: the loop is not told of what lies in our buffer.
    """

    def _setup_transport(self) -> None:
        super()._setup_transport()
        self._at_once = _AtOnce(self.sock)
        self._quick_recv = self._at_once.receive

    def having_timeout(self, timeout: float | None) -> Any:
        if timeout == 0 and self.sock.gettimeout() is None:  # Python itself waits on one with a timeout
            return self._at_once
        return super().having_timeout(timeout)


class _AtOnce:
    """A context in which a socket that blocks is read without blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._entered = False

    def receive(self, size: int) -> bytes:
        if not self._entered:
            return self._sock.recv(size)
        return self._sock.recv(max(size, READ_BYTES), socket.MSG_DONTWAIT)

    def __enter__(self) -> socket.socket:
        self._entered = True
        return self._sock

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._entered = False
        if isinstance(error, BlockingIOError):
            raise TimeoutError from error  # as py-amqp's own does


class BoundedWait:
    """Mixed into what waits for a reply.

    Raises, instead of waiting for ever: TimeoutError, which Celery takes for a lost connection.
    """

    answer_timeout_s = ANSWER_TIMEOUT_S  # less in a worker that stops

    def wait(
        self, method: Any, callback: Any = None, timeout: float | None = None, *rest: Any, **more: Any
    ) -> Any:
        return super().wait(method, callback, timeout or self.answer_timeout_s, *rest, **more)  # type: ignore[misc]


class BoundedChannel(BoundedWait, pyamqp.Channel):
    """A channel whose confirms and replies come in time, or raise."""

    def _on_basic_return(self, code: int, text: str, exchange: str, key: str, message: Any) -> None:
        """py-amqp raises what it makes of `text`; the broker's names nothing."""
        text = f"{text}: no queue took the message at exchange {exchange!r}, key {key!r}; run: topology apply"
        super()._on_basic_return(code, text, exchange, key, message)


class BoundedConnection(BoundedWait, pyamqp.Connection):
    """The same for the connection's own replies."""

    Channel = BoundedChannel

    def Transport(  # noqa: N802 - py-amqp's name
        self, host: str, connect_timeout: Any, ssl: Any = False,
        read_timeout: Any = None, write_timeout: Any = None, socket_settings: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        if ssl:  # its own reader does the same
            return super().Transport(
                host, connect_timeout, ssl, read_timeout, write_timeout, socket_settings, **options
            )
        return WideReads(host, connect_timeout, read_timeout, write_timeout, socket_settings, **options)


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
    """kombu's connection, for Celery's `amqp.Connection`.

    `meanwhile` is called each second, and after each try, while it cannot be made.
    """

    meanwhile: Callable[[], None] | None = None

    def ensure_connection(self, *args: Any, callback: Any = None, **options: Any) -> Any:
        def both() -> None:
            if callback is not None:
                callback()
            if self.meanwhile is not None:
                self.meanwhile()

        return super().ensure_connection(*args, callback=both, **options)

    def Pool(self, limit: int | None = None, **options: Any) -> BoundedPool:  # noqa: N802 - kombu's name
        return BoundedPool(self, limit, **options)
