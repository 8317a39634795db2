"""Between the broker and the pool, on the main thread: deliveries are checked, claimed, run and settled here.

Nothing that a message contains raises out of this module; errors of the connection do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID

from celery import signals
from celery.worker import state
from celery.worker.strategy import proto1_to_proto2
from kombu.compression import decompress
from kombu.utils.json import loads

from topology.deaths import forged
from topology.delivery import Refusal, TaskMessage
from topology.headers import OUTCOME
from topology.probe import probe_of
from workers.acking import ack_all
from workers.arrival import Arrival, seconds_until_due
from workers.checking import check
from workers.cleaning import round_trip
from workers.completing import Finished
from workers.entries import Postponed, Reply, Started
from workers.handing_over import take_up
from workers.harmless import widen, widen_for
from workers.outcomes import Dead, Outcome, Returned, describe
from workers.parsing import GuardedMessage, redelivered
from workers.request import RedriveRequest
from workers.telling import tell_expired, tell_refused
from workers.turns import Turns

if TYPE_CHECKING:
    from workers.consumer import RedriveConsumer
    from workers.ledger import Ledger

logger = logging.getLogger(__name__)
# The broker's timers count whole milliseconds.
NEARLY_S = 0.001
# Between the hard time limit and the end of the lease: to kill the process and to record.
GRACE_S = 30.0


class Guard:
    """One per worker process; it outlives broker connections."""

    def __init__(self, consumer: RedriveConsumer, ledger: Ledger) -> None:
        self._consumer = consumer
        self._ledger = ledger
        self._topology = consumer.app.environment.topology
        self._running: dict[UUID, RedriveRequest] = {}
        self._turns = Turns()
        self.revokes = consumer.revokes
        self.paused = False  # Postgres is away
        # Hard and soft time limit of tasks that have none of their own, seconds.
        controller = consumer.controller
        self.limits: tuple[float, float] = (controller.time_limit, controller.soft_time_limit)
        self.broker_errors: tuple[type[BaseException], ...] = (
            *consumer.connection_errors,
            *consumer.channel_errors,
        )

    # Arrival

    def receive(self, message: Any) -> None:
        """Check one delivery and hand it to the ledger, or reject it to the dead-letter exchange."""
        try:
            self._receive(message)
        except self.broker_errors:
            raise
        except Exception:
            fields = {"action": "refused", "reason": "unexpected", "queue": self._queue_of(message)}
            logger.exception("delivery rejected", extra=fields)
            self._reject_raw(message, "unexpected")

    def refuse(self, message: Any, error: BaseException) -> None:
        """kombu or py-amqp could not read it: to the dead-letter exchange, never acked."""
        detail = f"{type(error).__name__}: {error}"[:500]
        fields = {"action": "refused", "reason": "undecodable", "queue": self._queue_of(message)}
        logger.error("delivery rejected: %s", detail, extra=fields)
        self._reject_raw(message, "undecodable")

    def _receive(self, message: GuardedMessage) -> None:
        if message.unparsed is not None:
            self.refuse(message, message.unparsed)
            return
        if (probe := probe_of(message.raw_properties, message.raw_body)) is not None:
            # Never to the ledger: it is no job, and Postgres may be away.
            known = {"action": "probe_rejected", "queue": self._queue_of(message), "probe": str(probe.id)}
            logger.info("a probe goes on to the dead-letter exchange", extra=known)
            message.reject_log_error(logger, self.broker_errors, requeue=False)
            return
        checked, expired = check(message, self._consumer.strategies)
        name = self._queue_of(message)
        if forged(message.raw_properties):
            self._ledger.submit(
                round_trip(
                    message, checked, self._topology.queue(name), self._ledger.session, at_once=bool(expired)
                )
            )
            return
        if isinstance(checked, Refusal):
            fields = {"action": "refused", "reason": checked.reason, "queue": name, "job_id": checked.id}
            logger.error("delivery rejected: %s", checked.detail, extra=fields)
            self._reject_raw(message, checked.reason)
            tell_refused(self._consumer.app, message, checked)
            return
        arrival = Arrival(
            message,
            checked,
            self._topology.queue(name),
            message.raw_properties,
            message.raw_body,
            self._ledger.session,
            self._limit_s(checked),
            attempt=checked.attempt,
            expired=bool(expired),
        )
        if expired:
            self._ledger.submit(arrival)
            return
        if (value := message.headers.get(OUTCOME)) is not None and (run := take_up(arrival, value)):
            self._ledger.submit(run)
            return
        wait_s = seconds_until_due(checked)
        self._ledger.submit(Postponed(arrival, wait_s) if wait_s > NEARLY_S else arrival)

    def _queue_of(self, message: Any) -> str:
        delivery_info = getattr(message, "delivery_info", None) or {}
        name: str = self._consumer.task_consumer.queue_of(delivery_info.get("consumer_tag", ""))
        return name

    def _reject_raw(self, message: Any, reason: str) -> None:
        self._consumer.figures.refused(self._queue_of(message), reason)
        if isinstance(message, GuardedMessage):
            message.reject_log_error(logger, self.broker_errors, requeue=False)
        else:  # kombu could not even wrap it
            message.channel.basic_reject(message.delivery_tag, requeue=False)
        self._consumer.task_consumer.settled(redelivered(message))

    # The run

    def _admit(self) -> None:
        for arrival in self._turns.admit():
            self._dispatch(arrival)

    def _dispatch(self, arrival: Arrival) -> None:
        request = None
        try:
            request = self._request(arrival)
            self._running[arrival.token] = request
            if request.revoked():
                return
            signals.task_received.send(sender=self._consumer, request=request)
            request.send_received_event()
            bucket = self._consumer.task_buckets[request.task.name]
            if bucket and not self._consumer.disable_rate_limits:
                self._consumer._limit_task(request, bucket, 1)
                return
            state.task_reserved(request)
            for callback in self._consumer.on_task_message:
                callback(request)
            self._consumer.on_task_request(request)
        except self.broker_errors:
            raise
        except Exception as error:
            logger.exception("cannot be run", extra=arrival.log_fields("dispatch_failed"))
            end = Dead("malformed", describe(error))
            if request is None:
                self.finish(arrival, end)
            else:
                request.finish(end)  # unless it has ended already

    def _request(self, arrival: Arrival) -> RedriveRequest:
        message, task, app = arrival.message, arrival.task, self._consumer.app
        if task.protocol == 1:
            method = message.headers.get("compression")
            payload = loads(decompress(arrival.raw_body, method) if method else arrival.raw_body)
            _, headers, _, utc = proto1_to_proto2(message, payload)
        else:
            headers, utc = message.headers, app.uses_utc_timezone()
        headers = {**headers, "eta": None}
        # What Celery derives from a delivery's routing is that of a publish straight to the work queue.
        message.delivery_info |= {"exchange": "", "routing_key": arrival.queue.name}
        return RedriveRequest(
            message,
            arrival=arrival,
            guard=self,
            app=app,
            hostname=self._consumer.hostname,
            eventer=self._consumer.event_dispatcher,
            task=app.tasks[task.task],
            connection_errors=self._consumer.connection_errors,
            body=(task.args, task.kwargs, task.embed),
            headers=headers,
            decoded=True,
            utc=utc,
        )

    def started(self, arrival: Arrival) -> None:
        """A pool process began the run."""
        self._ledger.note(Started(arrival))
        if self._is_ours(arrival):
            widen_for(self._consumer, arrival, lambda: arrival.token in self._running)

    def _limit_s(self, message: TaskMessage) -> float:
        task = self._consumer.app.tasks[message.task]
        return float(message.timelimit[0] or task.time_limit or self.limits[0]) + GRACE_S

    def finish(self, arrival: Arrival, outcome: Outcome) -> None:
        """The run has ended: record it; the message is settled once that has committed."""
        self._running.pop(arrival.token, None)
        self._turns.ended(arrival)
        self._ledger.submit(Finished(arrival, outcome))
        self._admit()

    def give_back_waiting(self) -> None:
        """The same for what is claimed and has not had its turn."""
        for arrival in self._turns.leave():
            self.finish(arrival, Returned())

    def give_back(self, requests: list[RedriveRequest]) -> None:
        """Attempts that shall not run here: they wait again, uncounted, and their messages go back."""
        for request in requests:
            request.finish(Returned())

    @property
    def pool(self) -> Any:
        return self._consumer.pool

    @property
    def stopping(self) -> bool:
        """Whether this worker was told to stop."""
        return self._consumer.stopping.deadlines is not None

    def running(self) -> list[RedriveRequest]:
        return list(self._running.values())

    # Settlement

    def on_replies(self) -> None:
        """The ledger has answers."""
        acks: list[GuardedMessage] = []
        for reply in self._ledger.replies():
            arrival = reply.arrival
            if arrival is not None:
                self._turns.recorded(arrival)
            match reply.kind:
                case "run" if arrival and (self._consumer.closing or not self._is_ours(arrival)):
                    self.finish(arrival, Returned())
                case "run" if arrival:
                    self._turns.ask(arrival)
                case "ack" if arrival and self._is_ours(arrival):
                    if reply.detail == "duplicate":
                        logger.info("duplicate acked", extra=arrival.log_fields("duplicate"))
                    acks.append(arrival.message)
                case "reject" if arrival and self._is_ours(arrival):
                    self._reject(arrival, reply.detail)
                case "pause" | "resume" | "widen" | "failed":
                    self._on_notice(reply)
        if acks:
            self._consumer.containment.calm()
            ack_all(acks, self.broker_errors)
            for message in acks:
                self._consumer.task_consumer.settled(redelivered(message))
        self._admit()

    def _on_notice(self, reply: Reply) -> None:
        consumer = None if self._consumer.cut else self._consumer.task_consumer
        match reply.kind:
            case "pause":
                self.paused = True
                if consumer is not None:
                    consumer.pause()
            case "resume":
                self.paused = False
                if consumer is not None and not self._consumer.closing:
                    consumer.resume()
            case "widen":
                widen(self._consumer)
            case "failed":
                state.should_terminate = self._consumer.controller.exitcode = 1

    def _is_ours(self, arrival: Arrival) -> bool:
        """Else its connection is gone: the broker delivers it again, and the job's row tells its worth."""
        return arrival.session == self._ledger.session and arrival.message.channel.connection is not None

    def _reject(self, arrival: Arrival, reason: str) -> None:
        fields = arrival.log_fields("dead_lettered") | {"reason": reason}
        logger.info("rejected to the dead-letter exchange", extra=fields)
        arrival.message.reject_log_error(logger, self.broker_errors, requeue=False)
        if arrival.on_dead is not None:
            arrival.on_dead(reason)
        self._consumer.task_consumer.settled(redelivered(arrival.message))
        if arrival.expired and reason == "expired":
            tell_expired(self._consumer.app, arrival)
