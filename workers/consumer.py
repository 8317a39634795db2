"""Celery's consumer with our guard, and what it does at start, at a reconnect and at the end."""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from typing import Any

from amqp.exceptions import AccessRefused, NotAllowed
from celery import bootsteps
from celery.exceptions import WorkerShutdown
from celery.worker import state
from celery.worker.consumer import Consumer
from celery.worker.consumer.tasks import Tasks

from storage.worker_tasks import Registered
from topology import exits
from topology.backoff import Backoff, Waiting
from workers import controls, parsing, revokes
from workers.checks import refuse_unsafe, refuse_unsafe_tasks
from workers.comparing import refuse_unfit_queues
from workers.draining import Drain, give_back_unbegun, watch_all_processes
from workers.errors import UnsafeTaskError
from workers.figures import WorkerFigures
from workers.guard import Guard
from workers.ledger import Ledger
from workers.pacing import Pace
from workers.reconnecting import let_go, listening, pause
from workers.setting_checks import unused_settings
from workers.stopping import Stop
from workers.timers import Sweeping
from workers.unexpected import Containment, recurrences

logger = logging.getLogger(__name__)


class Guarding(bootsteps.StartStopStep):
    """On each new connection, before anything is consumed."""

    requires = (Tasks,)

    def start(self, c: RedriveConsumer) -> None:
        if c.ledger.session == 0:  # later, a lost connection is no time to give up
            c.refuse(lambda: refuse_unfit_queues(c.app), WorkerShutdown(exits.FAILED))
        c.ledger.session += 1
        watch_all_processes(c.pool)
        c.ledger.processes = c.pool.num_processes
        queues, tasks = sorted(c.app.amqp.queues.consume_from), sorted(c.app.tasks)
        c.ledger.register(Registered(tuple(queues), tuple(tasks)))
        topology, processes = c.app.environment.topology, c.pool.num_processes
        c.task_consumer.paused = c.guard.paused
        c.cut = False
        c.task_consumer.windows = {queue.name: queue.prefetch * processes for queue in topology.queues}


class RedriveConsumer(Consumer):
    """See `workers.guard`. Jobs that are claimed are ours to run, whatever becomes of the connection."""

    class Blueprint(Consumer.Blueprint):
        # Without Celery's DelayedDelivery: delays wait on our ladder.
        default_steps = [  # noqa: RUF012 - as Celery has it
            *(step for step in Consumer.Blueprint.default_steps if not step.endswith(":DelayedDelivery")),
            "workers.consumer:Guarding",
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        parsing.install()
        revokes.listen()
        controls.listen()
        self.closing = False
        self.cut = False  # between two broker connections
        self._pace = Pace()
        super().__init__(*args, **kwargs)
        self.refuse(
            lambda: refuse_unsafe(self.app, type(self.pool), self.controller), SystemExit(exits.FAILED)
        )
        for words in unused_settings(self.app):
            logger.warning(words, extra={"action": "setting_unused"})
        expected = (*self.connection_errors, *self.channel_errors)
        self.containment = Containment(self.loop, expected, recurrences(self.app.environment.topology))
        self.loop: Callable[..., Any] = self.containment.run
        self.stopping = Stop(self.app.environment.worker.grace_s)
        self.figures = WorkerFigures(self.app.environment.topology.jobs)
        self.ledger = Ledger(self.app.environment, self.hostname, self.figures)
        self.revokes = revokes.Revokes()
        revokes.load(self.controller, self.revokes)
        self.guard = Guard(self, self.ledger)
        self._sweeping = Sweeping()

    @staticmethod
    def refuse(check: Callable[[], None], end: BaseException) -> None:
        """Raise `end` where the check finds something."""
        try:
            check()
        except UnsafeTaskError as error:
            logger.critical("refused to start: %s", error)
            raise end from None

    def update_strategies(self) -> None:
        """Celery's, at each connection. Tasks that were registered meanwhile are checked like the others."""
        self.refuse(
            lambda: refuse_unsafe_tasks(self.app.tasks, self.controller.time_limit),
            WorkerShutdown(exits.FAILED),
        )
        super().update_strategies()

    def start(self) -> None:
        self.stopping.listen(self.hostname)
        self.ledger.start()
        while not self.ledger.ready.wait(0.2):  # it says what it waits for
            state.maybe_shutdown()
        try:
            super().start()
        except WorkerShutdown:
            Drain(self, self.stopping).run()
            raise

    def connection_for_write(self, heartbeat: Any = None) -> Any:
        """For events: nothing waits for their confirms, which an alarm of the broker would hold back."""
        connection = self.app.connection_for_write(heartbeat=heartbeat)
        connection.transport_options = {**connection.transport_options, "confirm_publish": False}
        return self.ensure_connected(connection)

    def ensure_connected(self, conn: Any) -> Any:
        """Celery's; a refused log-in and a missing vhost are waited for too.

        A broker that is being set up answers so, and Celery would give up or go round without a pause.
        """
        address = self.app.environment.broker.address
        waiting, backoff = Waiting(f"RabbitMQ at {address}", logger.warning, time.monotonic), Backoff()
        first = self.connection is None  # then comes the one for events
        conn.meanwhile = lambda: pause(self, 0.0)
        with listening(self):
            if first:
                pause(self, self._pace.pause_s())
            while True:
                try:
                    connected = super().ensure_connected(conn)
                except (AccessRefused, NotAllowed) as error:
                    waiting.failed(str(error))
                    pause(self, backoff.next_s())
                else:
                    if first:
                        self._pace.connected()
                    waiting.over()
                    return connected

    def register_with_event_loop(self, hub: Any) -> None:
        super().register_with_event_loop(hub)
        self._sweeping.start(hub, self.pool, self.figures.beat)
        # Celery resets the hub at each reconnect: registered once, it would be deaf afterwards.
        hub.add_reader(self.ledger.fd, self.guard.on_replies)
        self.guard.on_replies()

    def create_task_handler(self, promise: Any = None) -> Callable[[Any], None]:
        return self.guard.receive

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        self.guard.refuse(message, exc)

    def stop(self) -> None:
        self.closing = True
        super().stop()

    def on_close(self) -> None:
        """A connection was lost, or this worker stops.

        Celery drops here what has not started, for the broker delivers it again. So do we, in Postgres too:
        any worker may claim it then. What runs goes on, and its message meets a live lease and waits.
        """
        if not self.closing:
            let_go(self)

    def shutdown(self) -> None:
        """The pool has ended: settle what it left, then close the connection."""
        give_back_unbegun(self)
        self.guard.give_back(self.guard.running())
        self.ledger.closing = True
        until = self.stopping.begin().settle_until
        while self.ledger.outstanding > 0 and self.ledger.alive and time.monotonic() < until:
            select.select([self.ledger.fd], [], [], 0.2)
            self.guard.on_replies()
        if self.ledger.outstanding > 0:
            fields = {"action": "stopped_unsettled", "messages": self.ledger.outstanding}
            logger.warning("stopped with unsettled messages: the broker delivers them again", extra=fields)
        revokes.save(self.controller, self.revokes)
        super().shutdown()
        self.ledger.stop(max(self.stopping.begin().end - time.monotonic(), 0.0))
