"""The result backend of a `Redrive` app: results are read from the jobs' rows, and written by nobody else
than who records how a job ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from celery import states
from celery.backends.base import BaseBackend
from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as ResultTimeoutError
from kombu.utils.json import dumps, loads

from storage import results
from workers import loop
from workers.results import exceptions
from workers.results.chorded import DerivedChords

FIRST_WAIT_S = 0.02

_STATES = {
    None: states.PENDING,
    "PENDING": states.PENDING,
    "QUEUED": states.PENDING,
    "RUNNING": states.STARTED,
    "RETRYING": states.RETRY,
    "SUCCEEDED": states.SUCCESS,
    "DEAD": states.FAILURE,
    "CANCELLED": states.REVOKED,
}


class RedriveBackend(DerivedChords, BaseBackend):
    """`AsyncResult(id)` and `GroupResult` from any process that has the app and reaches the database."""

    persistent = True
    supports_autoexpire = True  # nothing is to be cleaned up for it
    supports_native_join = True

    def store_result(
        self, task_id: Any, result: Any, state: Any, traceback: Any = None, request: Any = None, **kwargs: Any
    ) -> Any:
        """Nothing: a job's end is recorded once, by the worker's main process."""
        return result

    def get_task_meta(self, task_id: str, cache: bool = True) -> dict[str, Any]:
        """Celery's meta. It is not cached: a replay takes a dead job up again."""
        self._ensure_not_eager()
        return self.metas([task_id])[task_id]

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        return self.metas([task_id])[task_id]

    def metas(self, task_ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Those of several tasks, with one look at the database.

        Raises:
            storage.errors.DatabaseAwayError: it cannot be reached.
        """
        ids = [str(task_id) for task_id in task_ids]
        found = loop.ask(self.app, lambda connection: results.find(connection, ids))
        return {result.id: self._meta(result) for result in found}

    def wait_for(
        self, task_id: str, timeout: float | None = None, interval: float = 0.5, no_ack: bool = True,
        on_interval: Callable[[], None] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Until the task has ended: looks again after 20 ms, then twice as long, up to `interval` seconds.

        Raises:
            celery.exceptions.TimeoutError: it has not, within `timeout` seconds.
        """
        self._ensure_not_eager()
        for _, meta in self.get_many([task_id], timeout=timeout, interval=interval, on_interval=on_interval):
            return meta
        raise AssertionError("get_many ends with a result or raises")

    def get_many(
        self, task_ids: Collection[str], timeout: float | None = None, interval: float = 0.5,
        no_ack: bool = True, on_message: Any = None, on_interval: Callable[[], None] | None = None,
        **kwargs: Any,
    ) -> Iterator[tuple[str, dict[str, Any]]]:  # fmt: skip
        """Each task and its meta as it ends; see `wait_for`."""
        left = {str(task_id) for task_id in task_ids}
        deadline = None if timeout is None else time.monotonic() + timeout
        wait_s = FIRST_WAIT_S
        while left:
            ready = {
                task_id: meta
                for task_id, meta in self.metas(left).items()
                if meta["status"] in states.READY_STATES
            }
            for task_id, meta in ready.items():
                if on_message is not None:
                    on_message(meta)
                yield task_id, meta
            left -= ready.keys()
            if not left:
                return
            if on_interval is not None:
                on_interval()
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise ResultTimeoutError("The operation timed out.")
            time.sleep(wait_s if left_s is None else min(wait_s, left_s))
            wait_s = FIRST_WAIT_S if ready else min(wait_s * 2, interval or 0.5)

    def close(self) -> None:
        """Close this process's connections to the database; what is used after that opens them again."""
        database = loop.database(self.app)
        database.run(database.close())

    def _save_group(self, group_id: str, result: Any) -> Any:
        encoded = dumps(result.as_tuple()).encode()
        loop.ask(self.app, lambda connection: results.save_group(connection, group_id, encoded))
        return result

    def _restore_group(self, group_id: str) -> Any:
        stored = loop.ask(self.app, lambda connection: results.group(connection, group_id))
        if stored is None:
            return None
        from celery.result import result_from_tuple

        return {"result": result_from_tuple(loads(stored.decode()), self.app)}

    def _delete_group(self, group_id: str) -> None:
        loop.ask(self.app, lambda connection: results.delete_group(connection, group_id))

    def _meta(self, found: results.Result) -> dict[str, Any]:
        status, value, traceback = _STATES[found.state], None, None
        if found.state is None and found.blocked is not None:
            status, value = states.FAILURE, exceptions.blocked(self, found.blocked)
        elif found.unread is not None:
            status, value = states.FAILURE, exceptions.rebuilt(self, found.unread)
        elif found.state == "SUCCEEDED":
            value = loads(found.result.decode()) if found.result is not None else None
        elif found.state in ("DEAD", "RETRYING"):
            value, traceback = exceptions.rebuilt(self, found.ended), found.ended.traceback
        elif found.state == "CANCELLED":
            value = TaskRevokedError("cancelled")
        elif found.state == "RUNNING" and found.progress is not None:
            progress = json.loads(found.progress)
            if progress.get("state") not in states.READY_STATES:  # the job has not ended
                status, value = progress.get("state") or status, progress.get("meta")
        return {
            "task_id": found.id,
            "status": status,
            "result": value,
            "traceback": traceback,
            "children": self._children(found),
            "date_done": found.finished_at.isoformat() if found.finished_at else None,
            "name": found.task,
            "queue": found.queue,
            "worker": found.worker,
            "retries": found.retries,
        }

    def _children(self, found: results.Result) -> list[Any]:
        return [] if found.children is None else loads(found.children.decode())
