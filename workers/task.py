"""The task base class: Celery's, but that a retry is the same message sent again by the main process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from celery import Task
from celery.app.task import get_actual_ignore_result
from celery.exceptions import Retry
from kombu.utils.json import dumps

from topology.headers import Attempt
from workers import cancelling, child, coroutines, delays, effects, loop, outcomes, progress
from workers.canvas.signatures import stable_id
from workers.database import AsyncPool, SyncDatabase
from workers.errors import JobCancelled, WorkerError
from workers.home_queue import MaxRetries

# Beyond it the check of a delivery refuses the message.
MOST_LIMIT_S = 1e8
RETRY_OPTIONS = frozenset({"time_limit", "soft_time_limit", "expires", "priority", "queue"})


class _NextAttempt:
    """What `Task.retry` takes for the signature of the retry: noted instead of published."""

    def __init__(
        self, task: RedriveTask, attempt: child.Attempt, args: Any, kwargs: Any, **options: Any
    ) -> None:
        request = task.request
        self.args = request.args if args is None else args
        self.kwargs = request.kwargs if kwargs is None else kwargs
        self._attempt = attempt
        eta, countdown = options.pop("eta", None), options.pop("countdown", None)
        options.pop("retries", None)
        if unknown := options.keys() - RETRY_OPTIONS:
            raise TypeError(
                f"{task.name}: retry() cannot change {', '.join(sorted(unknown))}; "
                f"it can change {', '.join(sorted(RETRY_OPTIONS))}"
            )
        if options.get("queue") is None:
            options.pop("queue", None)
        else:
            queue = getattr(options["queue"], "name", options["queue"])
            options["queue"] = task.app.environment.topology.queue(queue).name  # raises UnknownQueueError
        priority = options.get("priority")
        if priority is not None and not (isinstance(priority, int) and 0 <= priority <= 255):
            raise TypeError(f"{task.name}: retry(priority={priority!r}); it must be 0 to 255")
        for name in ("time_limit", "soft_time_limit"):
            limit = options.get(name)
            if limit is not None and not (isinstance(limit, int | float) and 0 < limit <= MOST_LIMIT_S):
                raise TypeError(f"{task.name}: retry({name}={limit!r}); it must be a number of seconds")
        if options.keys() & {"time_limit", "soft_time_limit"}:  # the other one stays as it is
            limits = zip(("time_limit", "soft_time_limit"), request.timelimit or (), strict=False)
            options = {**{name: limit for name, limit in limits if limit}, **options}
        changed = args is not None or kwargs is not None
        encoded = child.encode_arguments(self.args, self.kwargs, attempt.embed) if changed else None
        self._plan = outcomes.Retry(delays.asked_s(task.app, countdown, eta), encoded, _plain(options))

    def apply_async(self) -> None:
        self._attempt.retry = self._plan


class RedriveTask(Task):
    """Base of every task of a `Redrive` app. Attributes beside Celery's are for use inside of a run."""

    abstract = True
    Request = "workers.request:RedriveRequest"
    max_retries: Any = MaxRetries()
    # Celery's publishes are confirmed but, without this, an unroutable one is confirmed and dropped.
    mandatory = True

    @classmethod
    def bind(cls, app: Any) -> Any:
        """Celery's, but for a soft limit of the configuration that is over the task's own hard one.

        Celery would refuse each of its publishes. Below the hard limit there is nothing to warn of.
        """
        soft = cls.soft_time_limit
        bound = super().bind(app)
        if soft is None and cls.time_limit and (cls.soft_time_limit or 0) > cls.time_limit:
            cls.soft_time_limit = None
        return bound

    @property
    def claim(self) -> UUID:
        """The fencing token of this attempt."""
        return self._ticket().claim

    @property
    def attempt_number(self) -> Attempt:
        """Which run of the job this is: (generation, attempt), both from 1."""
        ticket = self._ticket()
        return Attempt(ticket.generation, ticket.attempt)

    @property
    def effect_key(self) -> str:
        """The same for every attempt and every replay of this job: an Idempotency-Key for the remote side."""
        return f"redrive:{self.request.id}"

    def once(self, key: str) -> effects.Once:
        """`with self.once(key) as tx:` — the effect of `key` happens once, whoever tries it how often.

        The key is inserted in the transaction of the statements run on `tx`, which commits at the end of the
        block if this attempt still holds its job. In an `async def` task: `async with`.

        Raises:
            workers.errors.AlreadyDone: the effect has happened; `.result` holds what was stored with it.
            workers.errors.LostClaimError: another worker has the job; nothing was kept.
        """
        return effects.Once(loop.database(), key, self._ticket())

    @property
    def database(self) -> SyncDatabase:
        """For plain tasks: `execute`, `fetch`, `transaction`."""
        return SyncDatabase(loop.database())

    @property
    def pool(self) -> AsyncPool:
        """For `async def` tasks: `acquire`, `execute`, `fetch`, `transaction`."""
        return AsyncPool(loop.database())

    def cancelled(self) -> bool:
        """Whether somebody asked this job to stop (`POST /jobs/{id}/cancel`), as known a second ago at most.

        It need not: what it returns counts as its result. But it is not tried again. In an `async def` task
        it is known some moments after the first call.
        """
        attempt = child.current()
        if attempt is None or self.request.is_eager:
            return False
        attempt.cancelling = attempt.cancelling or cancelling.Cancelling(attempt.ticket)
        return attempt.cancelling.look()

    def stop_if_cancelled(self) -> None:
        """End this attempt here, and with it the job as CANCELLED, if somebody asked it to stop.

        Raises:
            workers.errors.JobCancelled: to leave the task with; `autoretry_for` lets it pass.
        """
        if self.cancelled():
            raise JobCancelled(f"job {self.request.id} was asked to stop")

    def update_state(
        self, task_id: str | None = None, state: str | None = None, meta: Any = None, **kwargs: Any
    ) -> None:
        """Celery's, and the running job's `progress` as well."""
        attempt = child.current()
        if attempt is not None and task_id in (None, attempt.ticket.job_id):
            self._note_progress(attempt, dumps({"state": state, "meta": meta}, allow_nan=False).encode())
        super().update_state(task_id, state, meta, **kwargs)

    def retry(
        self, args: Any = None, kwargs: Any = None, exc: BaseException | None = None, throw: bool = True,
        eta: Any = None, countdown: float | None = None, max_retries: int | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Celery's `retry`, with its arguments and meaning.

        In a worker nothing is published here: the main process sends the same message (ids, headers, canvas)
        round the ladder, once the retry is on record. A `queue` must be one of the topology.
        """
        attempt = child.current()
        if attempt is None or self.request.called_directly or self.request.is_eager:
            return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        bound = self.max_retries if max_retries is None else max_retries
        attempt.capturing = True
        try:
            planned = super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        except Retry as retry:
            self._explain(attempt, retry)
            raise
        except BaseException:
            attempt.exhausted = bound is not None and self.request.retries >= bound
            raise
        finally:
            attempt.capturing = False
        self._explain(attempt, planned)
        return planned

    @property
    def override_max_retries(self) -> int:
        """What `retry` was told. Celery keeps it on the task, where the process's next job would meet it."""
        if (bound := self.request.__dict__.get("override_max_retries")) is None:
            raise AttributeError("override_max_retries")
        return int(bound)

    @override_max_retries.setter
    def override_max_retries(self, bound: int) -> None:
        self.request.__dict__["override_max_retries"] = bound

    @override_max_retries.deleter
    def override_max_retries(self) -> None:
        del self.request.__dict__["override_max_retries"]

    def replace(self, sig: Any) -> Any:
        """Celery's, outside of a worker.

        Raises:
            WorkerError: in a worker. The replacement would be a second job under this one's id, and acked as
                its duplicate.
        """
        if child.current() is not None and not self.request.is_eager:
            raise WorkerError(
                f"{self.name}: replace() is not supported; publish the signature, or link it to this task"
            )
        return super().replace(sig)

    def add_to_chord(self, sig: Any, lazy: bool = False) -> Any:
        """Celery's, with any result backend; the added job is the same one in every run of this one."""
        attempt = child.current()
        if attempt is not None and not self.request.is_eager:
            attempt.added += 1
            sig.options.setdefault("task_id", stable_id(self.request.id, "added", attempt.added))
        return super().add_to_chord(sig, lazy)

    def signature_from_request(
        self, request: Any = None, args: Any = None, kwargs: Any = None, *rest: Any, **extra: Any
    ) -> Any:
        attempt = child.current()
        if attempt is not None and attempt.capturing:
            return _NextAttempt(self, attempt, args, kwargs, **extra)
        return super().signature_from_request(request, args, kwargs, *rest, **extra)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        attempt, request = child.current(), self.request
        if attempt is None or request.called_directly or request._protected:
            return super().__call__(*args, **kwargs)
        request._protected = 1  # a task that calls itself is a plain call
        attempt.request = request
        value = coroutines.settled(self.run(*args, **kwargs))
        ignored = get_actual_ignore_result(self, request)
        # Here, so that a result that cannot be stored is a failure like any other, with its hooks.
        attempt.result = b"null" if ignored else child.encode_result(value)
        return value

    def _get_request(self) -> Any:
        """Celery's stack is per thread; the event loop's thread finds the request of its task here."""
        attempt = child.current()
        if self.request_stack.top is None and attempt is not None and attempt.request is not None:
            return attempt.request
        return super()._get_request()

    @property
    def request(self) -> Any:
        """Celery's `Task.request`."""
        return self._get_request()

    def _ticket(self) -> child.Ticket:
        attempt = child.current()
        if attempt is None:
            raise WorkerError(f"{self.name}: claim, attempt and once() exist in a worker only")
        return attempt.ticket

    @staticmethod
    def _note_progress(attempt: child.Attempt, state: bytes) -> None:
        database = loop.database()
        if not loop.thread().here:
            database.run(progress.write(database, attempt.ticket, state))
            return
        attempt.progress = attempt.progress or progress.ProgressWriter(database, attempt.ticket)
        attempt.progress.put(state)

    @staticmethod
    def _explain(attempt: child.Attempt, retry: Retry) -> None:
        if attempt.retry is not None and retry.exc is not None:
            attempt.retry = dataclasses.replace(attempt.retry, failure=outcomes.describe(retry.exc))


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """`expires` as Celery's messages carry it, the rest as it is."""
    plain = dict(options)
    expires = plain.get("expires")
    if isinstance(expires, int | float):
        expires = datetime.fromtimestamp(datetime.now(UTC).timestamp() + expires, UTC)
    if isinstance(expires, datetime):
        plain["expires"] = expires.isoformat()
    return plain
