"""A connection to RabbitMQ on the caller's asyncio loop, and waiting for one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pika.exceptions
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.frame import decode_frame

from topology.address import AmqpAddress
from topology.backoff import Backoff, Say, Waiting
from topology.broker_errors import BrokerAway
from topology.channel import BrokerChannel, Consumer, Delivery, QueueState, closing_reason, describe
from topology.reading_flow import ReadingFlow
from topology.wire import install

__all__ = [
    "BrokerChannel",
    "BrokerConnection",
    "Consumer",
    "Delivery",
    "QueueState",
    "connect",
    "connect_persistently",
    "open_connection",
]

log = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 5.0
# More is not put together: it would be copied for nothing.
AT_ONCE_BYTES = 128 * 1024


# pika asks the socket for 4 KiB at a time, two or three messages.
READ_BYTES = 32 * 1024
# Type, channel and size before a frame, and the octet at its end.
_FRAME_HEAD, _FRAME_FRAMING = 7, 8
_PROTOCOL_HEADER = b"A"[0]


class _Connection(AsyncioConnection):  # type: ignore[misc]
    """Writes at once what one turn of the loop sends: pika makes a system call for each frame, and three
    frames of a message. And reads in larger pieces: pika copies all that is left after each frame."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._frame_buffer = b""
        super().__init__(*arguments, **named)

    def _adapter_emit_data(self, data: bytes) -> None:
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_out)
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        if self._unwritten_bytes >= AT_ONCE_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        data, self._unwritten, self._unwritten_bytes = b"".join(self._unwritten), [], 0
        if data and self._transport is not None:  # else it is lost with the connection
            super()._adapter_emit_data(data)

    def _proto_connection_made(self, transport: Any) -> None:
        transport._MAX_RECV_BYTES = READ_BYTES
        super()._proto_connection_made(transport)

    def _on_data_available(self, data_in: bytes) -> None:
        self._frame_buffer = data = self._frame_buffer + data_in
        offset, size = 0, len(data)
        while offset + _FRAME_FRAMING <= size and data[offset] != _PROTOCOL_HEADER:
            end = offset + _FRAME_FRAMING + int.from_bytes(data[offset + 3 : offset + _FRAME_HEAD])
            if end > size:
                break
            _, frame = decode_frame(data[offset:end])
            self.bytes_received += end - offset  # by which pika knows that the broker is alive
            offset = end
            self._process_frame(frame)
            if self._frame_buffer is not data:
                return  # the connection has ended, and begun anew
        self._frame_buffer = data[offset:]
        if self._frame_buffer[:1] == b"A":  # a broker that refuses this protocol names its own
            super()._on_data_available(b"")


class BrokerConnection:
    """A live connection, made by `connect` or `open_connection`.

    A lost one is never revived. While the broker's memory or disk alarm stops publishers, `blocked` holds
    its reason.
    """

    def __init__(self, connection: AsyncioConnection) -> None:
        self._connection = connection
        self._flow = ReadingFlow()
        self.blocked: str | None = None
        self.on_unblocked: Callable[[], None] = lambda: None
        self._closed: asyncio.Future[BrokerAway] = asyncio.get_running_loop().create_future()
        connection.add_on_close_callback(self._on_close)
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)

    @property
    def is_open(self) -> bool:
        return bool(self._connection.is_open)

    @property
    def closed(self) -> asyncio.Future[BrokerAway]:
        """Done with the reason once the connection is lost or closed. Cancelling it does no harm."""
        return asyncio.shield(self._closed)

    @property
    def cluster(self) -> str:
        """The name that the broker's cluster gives itself; "" when it does not tell."""
        name = (self._connection.server_properties or {}).get("cluster_name", "")
        return name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)

    @property
    def frame_max(self) -> int:
        """The largest frame in bytes that both sides agreed on."""
        return int(self._connection.params.frame_max)

    async def channel(self, prefetch: int = 0) -> BrokerChannel:
        """A new channel; `prefetch` as in `BrokerChannel.qos`. Raises BrokerAway."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            raw = self._connection.channel(on_open_callback=lambda _channel: _finish(opened))
        except pika.exceptions.AMQPError as error:
            raise self._closed.result() if self._closed.done() else BrokerAway(describe(error)) from error
        channel = BrokerChannel(raw)
        try:
            waits: set[asyncio.Future[Any]] = {opened, channel.closed}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            with contextlib.suppress(pika.exceptions.AMQPError):
                raw.close()
            raise
        if channel.closed.done():
            raise channel.closed.result()
        if prefetch:
            await channel.qos(prefetch)
        return channel

    async def inspect(self, queue: str) -> QueueState:
        """Depth and consumers of a queue, on a channel of its own. Raises ChannelClosed (404) if missing."""
        channel = await self.channel()
        try:
            return await channel.passive_declare(queue)
        finally:
            await channel.close()

    def pause_reading(self) -> None:
        """Take nothing more from the socket, so that the broker's own buffers fill; for seconds, since
        heartbeats are not read either (both sides give up after about a minute)."""
        self._flow.pause(self._connection)

    def resume_reading(self) -> None:
        self._flow.resume(self._connection)

    async def close(self) -> None:
        """Close properly; if the broker does not answer within 5 s, drop the connection."""
        self.resume_reading()
        with contextlib.suppress(pika.exceptions.ConnectionWrongStateError):
            self._connection.close()
        if not self._closed.done():
            await asyncio.wait({self._closed}, timeout=CLOSE_TIMEOUT_S)
        if not self._closed.done():
            self._connection._terminate_stream(
                pika.exceptions.StreamLostError("no answer to connection.close")
            )
            await asyncio.wait({self._closed}, timeout=CLOSE_TIMEOUT_S)

    def _on_close(self, _connection: object, error: Exception) -> None:
        reason = closing_reason(error)
        assert isinstance(reason, BrokerAway)
        if not self._closed.done():
            self._closed.set_result(reason)

    def _on_blocked(self, _connection: object, frame: Any) -> None:
        self.blocked = str(frame.method.reason)

    def _on_unblocked(self, _connection: object, _frame: object) -> None:
        self.blocked = None
        self.on_unblocked()


async def connect(address: AmqpAddress, name: str) -> BrokerConnection:
    """Connect once. `name` shows in the management UI. Raises BrokerAway with the reason."""
    install()
    _silence_pika()
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    connection = _Connection(
        address.pika_parameters(name),
        on_open_callback=lambda _connection: _finish(opened),
        on_open_error_callback=lambda _connection, error: _finish(opened, BrokerAway(describe(error))),
        custom_ioloop=asyncio.get_running_loop(),
    )
    try:
        await opened
    except asyncio.CancelledError:
        with contextlib.suppress(pika.exceptions.ConnectionWrongStateError):
            connection.close()
        raise
    return BrokerConnection(connection)


async def connect_persistently(
    address: AmqpAddress,
    name: str,
    *,
    say: Say = log.warning,
    backoff: Backoff | None = None,
) -> BrokerConnection:
    """Connect, however long it takes, saying now and then what is waited for."""
    backoff = backoff or Backoff()
    waiting = Waiting(f"RabbitMQ at {address}", say, asyncio.get_running_loop().time)
    while True:
        try:
            connection = await connect(address, name)
        except BrokerAway as error:
            waiting.failed(str(error))
            await asyncio.sleep(backoff.next_s())
        else:
            waiting.over()
            return connection


@asynccontextmanager
async def open_connection(
    address: AmqpAddress, name: str, say: Say = log.warning
) -> AsyncIterator[BrokerConnection]:
    """Wait for the broker, yield a connection, close it. Its loss shows in `connection.closed`; for the next
    one enter again."""
    connection = await connect_persistently(address, name, say=say)
    try:
        yield connection
    finally:
        await connection.close()


def _finish(future: asyncio.Future[None], error: Exception | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _silence_pika() -> None:
    """pika logs several errors for each failed attempt; every one of them reaches our caller as an exception
    or in `closed`. Whoever sets the level of the logger "pika" gets them."""
    logger = logging.getLogger("pika")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
