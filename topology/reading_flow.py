"""Stopping and starting what pika reads from a socket: it has no such call of its own."""

from __future__ import annotations

import asyncio
import errno
import ssl
from typing import Any

from pika.adapters.asyncio_connection import AsyncioConnection


class ReadingFlow:
    """Of one connection."""

    def __init__(self) -> None:
        self._paused_transport: Any = None

    def pause(self, connection: AsyncioConnection) -> None:
        """May be called again. Does nothing to a connection that is gone."""
        transport: Any = connection._transport
        if transport is None or self._paused_transport is transport or _is_closed(transport):
            return
        self._paused_transport = transport
        # What is in hand at this moment is read on until the next recv, which finds nothing.
        transport._sigint_safe_recv = _nothing_there
        asyncio.get_running_loop().remove_reader(transport._sock.fileno())

    def resume(self, connection: AsyncioConnection) -> None:
        transport, self._paused_transport = self._paused_transport, None
        if transport is None or transport is not connection._transport or _is_closed(transport):
            return
        del transport._sigint_safe_recv
        loop = asyncio.get_running_loop()
        loop.add_reader(transport._sock.fileno(), transport._on_socket_readable)
        # TLS may have decrypted bytes that no socket event tells of.
        loop.call_soon(transport._on_socket_readable)


def _is_closed(transport: Any) -> bool:
    return bool(transport._sock is None or transport._sock.fileno() < 0)


def _nothing_there(sock: Any, _size: int) -> bytes:
    if isinstance(sock, ssl.SSLSocket):
        raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "reading is paused")
    raise BlockingIOError(errno.EAGAIN, "reading is paused")
