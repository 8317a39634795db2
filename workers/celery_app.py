"""The Celery app: `app = Redrive("shop")` in place of `Celery("shop")`."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

from celery import Celery
from celery.app import backends
from celery.exceptions import Reject

from storage.errors import DatabaseAwayError
from topology.kombu_entities import task_queues
from workers import autoretry, coroutines, delays, logs
from workers.canvas import tasks as canvas_tasks
from workers.errors import UnsafeTaskError
from workers.exposing import Exposing
from workers.results.chorded import chorded
from workers.settings import Environment, from_environment
from workers.transport import ANSWER_TIMEOUT_S

# `autoretry_for=(Exception,)` would catch them: a rejection is the task's last word, and while Postgres is
# away the attempt is given back, uncounted.
NEVER_AUTORETRIED = (Reject, DatabaseAwayError)


class Redrive(Celery):
    """Celery with tasks whose messages cannot be lost.

    Args:
        environment: settings and topology; by default read from the environment (`REDRIVE_…`, `.env`) when
            the configuration is first needed.
    """

    task_cls = "workers.task:RedriveTask"
    amqp_cls = "workers.consuming:RedriveAMQP"

    def __init__(
        self, main: str | None = None, *args: Any, environment: Environment | None = None, **kwargs: Any
    ) -> None:
        super().__init__(main, *args, **kwargs)
        if environment is not None:
            self.__dict__["environment"] = environment
        logs.install()
        self.add_defaults(lambda: self._below_the_users(defaults(self.environment, main)))
        canvas_tasks.register(self)
        self.steps["worker"].add(Exposing)

    def _below_the_users(self, ours: dict[str, Any]) -> dict[str, Any]:
        """Put our defaults just above Celery's.

        `add_defaults` alone would put them above what `config_from_object` read, and nobody would be told.
        """
        for maps in (self._conf.maps, self._conf.defaults):
            maps.insert(len(maps) - 1, ours)
        return {}

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name
        return self.subclass_with_self("workers.worker:RedriveWorker")

    @cached_property
    def environment(self) -> Environment:
        return from_environment()

    def _get_backend(self) -> Any:
        """Celery's, with chords that are derived from the jobs' rows."""
        kind, url = backends.by_url(self.backend_cls or self.conf.result_backend, self.loader)
        return chorded(kind)(app=self, url=url)

    def _task_from_fun(
        self, fun: Any, name: str | None = None, base: Any = None, bind: bool = False, **options: Any
    ) -> Any:
        if inspect.isasyncgenfunction(fun):
            raise UnsafeTaskError(coroutines.GENERATOR.format(name=name or fun.__name__))
        if coroutines.is_async(fun):
            fun = coroutines.on_loop(fun)
        given = options.get("dont_autoretry_for", getattr(base or self.Task, "dont_autoretry_for", ()))
        options["dont_autoretry_for"] = (*given, *NEVER_AUTORETRIED)
        task = super()._task_from_fun(fun, name=name, base=base, bind=bind, **options)
        coroutines.adapt(type(task), task.name)
        autoretry.replace_autoretry(task, options)
        return task

    def send_task(
        self, name: str, args: Any = None, kwargs: Any = None, countdown: Any = None, eta: Any = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Celery's; a delay goes straight to the queue's ladder.

        Raises when the broker has no such queue (unless told `mandatory=False`), and when it does not confirm
        in time (`confirm_timeout`, seconds). A message that was not confirmed may have arrived: sent again
        under the same task id it is the same job. A delay of over 366 days is a ValueError.

        With an expiry it goes by the work queue, where the guard sends it to the ladder: the message's own
        TTL would cut the delay short.
        """
        delay_s = delays.asked_s(self, countdown, eta)
        if delay_s > 0:
            way = delays.by_ladder(self, name, args, kwargs, delay_s, options)
            if way is not None:
                options, countdown, eta = way, None, None
        if options.get("mandatory") is None:  # a task says so itself, a name cannot
            options["mandatory"] = True
        return super().send_task(name, args, kwargs, countdown, eta, **options)

    def register_task(self, task: Any, **options: Any) -> Any:
        kind: Any = task if isinstance(task, type) else type(task)
        coroutines.adapt(kind, task.name or kind.__name__)
        given = options.get("dont_autoretry_for", getattr(kind, "dont_autoretry_for", ()))
        options["dont_autoretry_for"] = (*given, *NEVER_AUTORETRIED)
        registered = super().register_task(task, **options)
        autoretry.replace_autoretry(registered, options)
        return registered


def defaults(environment: Environment, main: str | None = None) -> dict[str, Any]:
    """Celery's settings as Redrive needs them. Each can be overridden; what loses messages is refused."""
    broker, worker, topology = environment.broker, environment.worker, environment.topology
    return {
        "broker_url": broker.address.kombu_url(),
        "broker_connection_max_retries": None,
        "broker_connection_retry_on_startup": True,
        # A channel that the broker closes (406 at its consumer timeout) is a lost connection, not the end.
        "broker_channel_error_retry": True,
        "broker_heartbeat": broker.address.heartbeat_s,
        "broker_transport_options": {
            "confirm_publish": True,
            "write_timeout": ANSWER_TIMEOUT_S,
            "client_properties": {"connection_name": main or "redrive"},
        },
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "result_backend": "workers.results.backend.RedriveBackend",
        "task_queues": task_queues(topology, broker.time_scale),
        "task_default_queue": topology.queues[0].name,
        "task_create_missing_queues": False,
        "task_routes": {job.name: {"queue": job.queue} for job in topology.jobs},
        "task_acks_late": True,
        "task_acks_on_failure_or_timeout": False,
        "task_reject_on_worker_lost": True,
        "task_soft_time_limit": worker.soft_time_limit_s,
        "task_time_limit": worker.time_limit_s,
        "worker_consumer": "workers.consumer:RedriveConsumer",
        # Quorum queues need a window per consumer; the consumer sets one for each queue.
        "worker_detect_quorum_queues": True,
        "worker_prefetch_multiplier": max(queue.prefetch for queue in topology.queues),
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }
