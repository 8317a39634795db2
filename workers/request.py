"""A claimed attempt in the main process: it runs in the pool; every way it can end becomes one outcome."""

from __future__ import annotations

import logging
import weakref
from datetime import datetime
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionInfo, ExceptionWithTraceback
from billiard.exceptions import SoftTimeLimitExceeded, Terminated, TimeLimitExceeded, WorkerLostError
from billiard.pool import MaybeEncodingError
from celery import signals
from celery.exceptions import Ignore, Reject, TaskRevokedError
from celery.worker import state
from celery.worker.request import Request

from workers import child
from workers.outcomes import Crashed, Dead, Failure, Outcome, Retry, Returned, Succeeded, describe

if TYPE_CHECKING:
    from workers.arrival import Arrival
    from workers.guard import Guard

logger = logging.getLogger(__name__)


class RedriveRequest(Request):
    """Celery's request with our ends: nothing is acked or rejected here, only finished, once."""

    def __init__(self, message: Any, *, arrival: Arrival, guard: Guard, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.arrival = arrival
        self._guard = guard
        self._finished = False
        self._handed_back = False
        self._request_dict["redrive"] = child.Ticket(
            arrival.task.id,
            arrival.token,
            arrival.attempt.generation,
            arrival.attempt.attempt,
            arrival.suspect,
            arrival.limit_s,
        )

    @property
    def limits(self) -> tuple[float, float]:
        """Hard and soft, in seconds: the message's, else the task's, else the worker's."""
        hard, soft = self.time_limits
        worker_hard, worker_soft = self._guard.limits
        return hard or self.task.time_limit or worker_hard, soft or self.task.soft_time_limit or worker_soft

    def revoked(self) -> bool:
        """Celery's; of a replayed job only a revoke that came after the replay counts."""
        replayed = self.arrival.replayed
        if replayed is None or self._already_revoked:
            return bool(super().revoked())
        expired = self.expires is not None and self.expires < datetime.now(self.expires.tzinfo)
        if not expired and not self._guard.revokes.meant(self.id, self.stamps, replayed):
            return False
        self._announce_revoked("expired" if expired else "revoked", False, None, expired)
        return True

    def execute_using_pool(self, pool: Any, **kwargs: Any) -> Any:
        if self.revoked():
            raise TaskRevokedError(self.id)
        hard, soft = self.limits
        try:
            result = pool.apply_async(
                child.run,
                args=(self._type, self.id, self._request_dict, self._body),
                accept_callback=self.on_accepted,
                timeout_callback=self.on_timeout,
                callback=self.on_success,
                error_callback=self.on_failure,
                soft_timeout=soft,
                timeout=hard,
                correlation_id=self.id,
            )
        except Exception as error:
            # A value that cannot cross to the pool. Raising frees the pool slot that was taken for us.
            logger.exception("cannot be handed to the pool", extra=self.arrival.log_fields("not_run"))
            self.finish(Dead("malformed", describe(error)))
            raise TaskRevokedError(self.id) from error
        self._apply_result = weakref.ref(result)
        return result

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        try:
            super().on_accepted(pid, time_accepted)
        except Exception:
            # An event that cannot be sent, a lost connection: raising would have the process skip this job.
            logger.exception("not told of a start", extra=self.arrival.log_fields("telling_failed"))
        self._guard.started(self.arrival)

    def on_success(self, report: Any, **kwargs: Any) -> None:
        """The pool process reported, of a success or not."""
        assert isinstance(report, child.Report)
        outcome = report.outcome
        # Never as `successful`: the job's row tells a duplicate, not a set that has to be kept in order.
        state.task_ready(self)
        self.finish(outcome)
        failure = getattr(outcome, "failure", None) or Failure("", "")
        match outcome:
            case Succeeded():
                self.send_event("task-succeeded", result=report.shown, runtime=report.runtime)
            case Retry():
                self.send_event("task-retried", exception=failure.message, traceback=failure.traceback)
            case Dead():
                text = f"{failure.type}({failure.message!r})"
                self.send_event("task-failed", exception=text, traceback=failure.traceback)
                self.send_event("task-rejected", requeue=False)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> None:
        """The pool process did not report: it was lost, or it could not."""
        state.task_ready(self)
        error = exc_info.exception
        if isinstance(error, ExceptionWithTraceback):
            error = error.exc
        if self._handed_back or self._already_cancelled:  # by us, and its process has ended
            self.finish(Returned())
            return
        if isinstance(error, Terminated):
            if self._already_revoked:
                return
            self._announce_revoked("terminated", True, str(error), False)
            return
        outcome = self._judge(error, str(exc_info.traceback))
        self.finish(outcome)
        if not isinstance(outcome, Returned):
            logger.error("attempt ended: %r", error, extra=self.arrival.log_fields("attempt_lost"))
            self.send_event("task-failed", exception=repr(error), traceback=str(exc_info.traceback))

    def _judge(self, error: BaseException, traceback: str) -> Outcome:
        failure = describe(error, traceback)
        match error:
            case TimeLimitExceeded():
                return Crashed("hard_timeout", failure)
            case SoftTimeLimitExceeded():  # it hit our own code around the task
                return Dead("soft_timeout", failure)
            case MemoryError():
                return Crashed("memory", failure)
            case MaybeEncodingError() if "MemoryError" in str(error.exc):  # while the report was pickled
                return Crashed("memory", failure)
            case WorkerLostError() if "signal 15 " in str(error) and self._guard.stopping:
                return Returned()  # the signal to stop went to the pool processes too
            case WorkerLostError():
                return Crashed("worker_lost", failure)
            case Ignore():
                return Succeeded(b"null")
            case Reject():
                return Dead("rejected", failure)
        return Dead("exception", failure)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """billiard has reported a hard limit to `on_failure` already."""
        kind = "soft" if soft else "hard"
        logger.warning(
            "%s time limit (%s s)", kind, timeout, extra=self.arrival.log_fields(f"{kind}_timeout")
        )

    def on_dead(self, reason: str) -> None:
        """An attempt that ended without the task's word was the last: tell a result backend."""
        error = WorkerLostError(f"dead-lettered: {reason}")
        try:
            self.task.backend.mark_as_failure(
                self.id, error, request=self._context, store_result=self.store_errors, call_errbacks=False
            )
            info = _info(error)
            signals.task_failure.send(
                sender=self.task, task_id=self.id, exception=error, args=self.args, kwargs=self.kwargs,
                traceback=info.tb, einfo=info,
            )  # fmt: skip
        except Exception:
            logger.exception(
                "the result backend was not told", extra=self.arrival.log_fields("backend_failed")
            )

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        self.finish(Dead("expired" if expired else "revoked", Failure("", reason)))
        try:
            super()._announce_revoked(reason, terminated, signum, expired)
        except Exception:  # a result backend that is away
            logger.exception("not told of a revoke", extra=self.arrival.log_fields("telling_failed"))
        finally:
            self._already_revoked = True

    def acknowledge(self) -> None:
        """Celery settles here; ours is settled once the ledger has committed."""

    def reject(self, requeue: bool = False) -> None:
        """See `acknowledge`."""

    def hand_back(self, number: int) -> None:
        """End its process by this signal; the attempt then waits again, uncounted."""
        self._handed_back = True
        job: Any = self._apply_result and self._apply_result()
        pid = self.worker_pid or getattr(getattr(job, "_write_to", None), "pid", None)
        if pid is None:
            self.finish(Returned())
        else:
            self._guard.pool.terminate_job(pid, number)

    def finish(self, outcome: Outcome) -> None:
        """Record how the attempt ended. The first word counts."""
        if not self._finished:
            self._finished = self.acknowledged = True
            if isinstance(outcome, Crashed):
                self.arrival.on_dead = self.on_dead
            self._guard.finish(self.arrival, outcome)

    def send_received_event(self) -> None:
        if self._eventer and self._eventer.enabled and self.task.send_events:
            self._eventer.send(
                "task-received", uuid=self.id, name=self.name, args=self.argsrepr, kwargs=self.kwargsrepr,
                root_id=self.root_id, parent_id=self.parent_id, retries=self.arrival.task.retries,
                eta=None, expires=self.expires and self.expires.isoformat(),
            )  # fmt: skip

    @property
    def begun(self) -> bool:
        """Whether a pool process has it, or is being handed it."""
        job: Any = self._apply_result and self._apply_result()
        return bool(job and (job._accepted or job._write_to is not None))


def _info(error: BaseException) -> Any:
    try:
        raise error
    except type(error):
        return ExceptionInfo()
