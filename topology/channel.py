"""One AMQP channel on an asyncio loop: consume, settle, and the raw side of confirmed publishing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika.channel
import pika.exceptions
import pika.spec

from topology.broker_errors import BrokerAway, ChannelClosed, IsStream
from topology.frames import publish_frames
from topology.wire import RawProperties

REPLY_TIMEOUT_S = 30.0
PRECONDITION_FAILED = 406


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as the broker handed it over. `properties` is the raw property list (see `topology.wire`); in
    exchange and routing key, bytes that are not UTF-8 are lone surrogates (`os.fsdecode`'s way)."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    consumer_tag: str
    properties: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Consumer:
    """A running consumer."""

    queue: str
    tag: str
    ended: asyncio.Future[str]

    @property
    def cancelled(self) -> asyncio.Future[str]:
        """Done with a reason once the broker ends the consumer. Cancelling it does no harm."""
        return asyncio.shield(self.ended)


@dataclass(frozen=True, slots=True)
class QueueState:
    """Ready messages and consumers, as the broker knows them at this moment."""

    messages: int
    consumers: int


class BrokerChannel:
    """Made by `BrokerConnection.channel`."""

    def __init__(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._consumers: dict[str, Consumer] = {}
        self._closed: asyncio.Future[ChannelClosed | BrokerAway] = self._loop.create_future()
        channel.add_on_close_callback(self._on_close)
        channel.add_on_cancel_callback(self._on_cancel)

    @property
    def is_open(self) -> bool:
        return bool(self._channel.is_open)

    @property
    def closed(self) -> asyncio.Future[ChannelClosed | BrokerAway]:
        """Done with the reason once the channel is gone. Cancelling it does no harm."""
        return asyncio.shield(self._closed)

    async def qos(self, prefetch: int) -> None:
        """At most `prefetch` unsettled deliveries for each consumer started from now on; 0 is no bound."""
        await self._call(
            "basic.qos", lambda done: self._channel.basic_qos(prefetch_count=prefetch, callback=done)
        )

    async def passive_declare(self, queue: str) -> QueueState:
        """Raises ChannelClosed (404) if the queue is missing; the channel is gone then."""
        reply = await self._call(
            "queue.declare", lambda done: self._channel.queue_declare(queue, passive=True, callback=done)
        )
        return QueueState(reply.method.message_count, reply.method.consumer_count)

    async def declare_own(self) -> str:
        """A queue of this connection alone, gone with it; the name that the broker gave it."""
        reply = await self._call(
            "queue.declare",
            lambda done: self._channel.queue_declare(
                "", exclusive=True, arguments={"x-queue-type": "classic"}, callback=done
            ),
        )
        return str(reply.method.queue)

    async def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Raises ChannelClosed (404) if either is missing."""
        await self._call(
            "queue.bind", lambda done: self._channel.queue_bind(queue, exchange, routing_key, callback=done)
        )

    async def unbind(self, queue: str, exchange: str, routing_key: str) -> None:
        """What was routed before is in the queue by then, or on its way to it."""
        await self._call(
            "queue.unbind",
            lambda done: self._channel.queue_unbind(queue, exchange, routing_key, callback=done),
        )

    async def consume(
        self, queue: str, on_delivery: Callable[[Delivery], None], *, priority: int = 0
    ) -> Consumer:
        """Start a consumer with manual acknowledgement. Others get messages only while none of a higher
        `priority` can take them (https://www.rabbitmq.com/docs/consumer-priority).

        `on_delivery` runs on the loop and must neither block nor raise: an exception ends the connection.
        Raises ChannelClosed if the queue is missing (404) or exclusively taken (403), IsStream if it is one.
        """

        def deliver(_channel: object, method: Any, properties: RawProperties, body: bytes) -> None:
            on_delivery(
                Delivery(
                    method.delivery_tag,
                    method.redelivered,
                    _as_text(method.exchange),
                    _as_text(method.routing_key),
                    method.consumer_tag,
                    properties.raw,
                    body,
                )
            )

        try:
            reply = await self._call(
                "basic.consume",
                lambda done: self._channel.basic_consume(
                    queue,
                    deliver,
                    auto_ack=False,
                    # Also 0, which is the default: streams know no priority and refuse it.
                    arguments={"x-priority": priority},
                    callback=done,
                ),
            )
        except ChannelClosed as error:
            if error.code == PRECONDITION_FAILED and "rabbit_stream_queue" in error.text:
                raise IsStream(error.code, error.text) from error
            raise
        consumer = Consumer(queue, reply.method.consumer_tag, self._loop.create_future())
        self._consumers[consumer.tag] = consumer
        return consumer

    async def cancel(self, consumer: Consumer) -> None:
        """Stop deliveries. Those on their way still reach `on_delivery` and are the caller's to settle."""
        if self._consumers.pop(consumer.tag, None) is None:
            return

        def start(done: Callable[[Any], None]) -> None:
            self._channel.basic_cancel(consumer.tag, callback=done)
            # Left in there, pika would requeue what still arrives, and each return counts toward the
            # queue's delivery limit.
            self._channel._cancelled.discard(consumer.tag)

        await self._call("basic.cancel", start)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Raises ChannelClosed or BrokerAway if the channel is gone: the message will be delivered again."""
        self._send(lambda: self._channel.basic_ack(tag, multiple=multiple))

    def reject(self, tag: int, *, requeue: bool) -> None:
        """Dead-letter (`requeue=False`) or return one message. Raises as `ack` does."""
        self._send(lambda: self._channel.basic_reject(tag, requeue=requeue))

    async def confirm(
        self, on_confirm: Callable[[int, bool, bool], None], on_return: Callable[[str, bytes], None]
    ) -> None:
        """Put the channel in confirm mode: `on_confirm(tag, multiple, taken)` tells what became of publish
        number `tag` (from 1), `on_return(reply, properties)` comes before that of a message no queue took."""

        def confirmed(frame: Any) -> None:
            method = frame.method
            on_confirm(method.delivery_tag, method.multiple, method.NAME == "Basic.Ack")

        def returned(_channel: object, method: Any, properties: RawProperties, _body: bytes) -> None:
            on_return(f"{method.reply_code} {_as_text(method.reply_text)}", properties.raw)

        self._channel.add_on_return_callback(returned)
        await self._call(
            "confirm.select", lambda done: self._channel.confirm_delivery(confirmed, callback=done)
        )

    def publish(self, exchange: bytes, routing_key: bytes, properties: bytes, body: bytes) -> None:
        """Write one mandatory message. Raises ChannelClosed or BrokerAway, and nothing was written then."""
        connection = self._channel.connection
        frames = publish_frames(
            self._channel.channel_number,
            exchange,
            routing_key,
            properties,
            body,
            connection._body_max_length,
        )
        if not self._channel.is_open:
            raise self._gone(pika.exceptions.ChannelWrongStateError("the channel is closed"))
        connection._output_marshaled_frames(frames)

    async def rpc(self, method: str, *arguments: Any, **named: Any) -> Any:
        """The reply to any other method of pika's channel, such as `queue_bind`. Raises ChannelClosed if the
        broker refuses it; the channel is gone then."""
        call = getattr(self._channel, method)
        return await self._call(method, lambda done: call(*arguments, callback=done, **named))

    async def close(self) -> None:
        """Close the channel; what was not settled goes back to its queue."""
        if self._channel.is_open:
            self._channel.close()
        if not self._closed.done():
            await asyncio.wait({self._closed}, timeout=REPLY_TIMEOUT_S)

    async def _call(self, what: str, start: Callable[[Callable[[Any], None]], object]) -> Any:
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(reply)
        try:
            self._send(lambda: start(lambda frame: None if reply.done() else reply.set_result(frame)))
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                return await reply
        except TimeoutError as error:
            raise BrokerAway(f"no answer to {what} within {REPLY_TIMEOUT_S:g} s") from error
        finally:
            self._waiting.discard(reply)

    def _send(self, write: Callable[[], object]) -> None:
        try:
            write()
        except pika.exceptions.AMQPError as error:
            raise self._gone(error) from error

    def _gone(self, error: Exception) -> ChannelClosed | BrokerAway:
        return self._closed.result() if self._closed.done() else BrokerAway(str(error))

    def _on_close(self, _channel: object, error: Exception) -> None:
        reason = closing_reason(error)
        for reply in self._waiting:
            if not reply.done():
                reply.set_exception(reason)
        if not self._closed.done():
            self._closed.set_result(reason)

    def _on_cancel(self, frame: Any) -> None:
        consumer = self._consumers.pop(frame.method.consumer_tag, None)
        if consumer is not None and not consumer.ended.done():
            consumer.ended.set_result(f"queue {consumer.queue!r} was deleted or is unavailable")


def closing_reason(error: BaseException | None) -> ChannelClosed | BrokerAway:
    """pika's reason for an end as ours."""
    if isinstance(error, pika.exceptions.ChannelClosedByBroker):
        return ChannelClosed(error.reply_code, _as_text(error.reply_text))
    if isinstance(error, pika.exceptions.ChannelClosedByClient | pika.exceptions.ConnectionClosedByClient):
        return BrokerAway("closed by us")
    return BrokerAway(describe(error))


def describe(error: BaseException | None) -> str:
    """The innermost cause of a pika error, in words."""
    while (inner := _wrapped(error)) is not None:
        error = inner
    if isinstance(error, pika.exceptions.ConnectionClosed):
        return f"{error.reply_code} {_as_text(error.reply_text)}"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) or type(error).__name__


def _wrapped(error: BaseException | None) -> BaseException | None:
    places = (
        *getattr(error, "args", ()),
        getattr(error, "exception", None),
        *getattr(error, "exceptions", ()),
    )
    return next((each for each in reversed(places) if isinstance(each, BaseException)), None)


def _as_text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
