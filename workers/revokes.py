"""Which revokes this worker was told of, and when: a replay made after a revoke is not stopped by it.

Celery keeps the ids of revoked tasks for hours and forgets when that was: it stamps them anew when it reads
them from `--statedb` or gets them from another worker. That is enough for the first generation of a job.
A later one exists since somebody replayed the job, and only a revoke that came after that is meant for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from celery.utils.functional import maybe_list
from celery.worker import state
from celery.worker.control import Panel

# In the file of `--statedb`, beside what Celery keeps there: job id -> seconds since the epoch.
SAVED = "redrive_revokes"
_NEVER = float("-inf")


class Revokes:
    """Of one worker process. Times are monotonic seconds."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        most: int = state.REVOKES_MAX,
    ) -> None:
        self._clock, self._wall_clock, self._most = clock, wall_clock, most
        self._jobs: dict[str, float] = {}
        self._stamps: dict[tuple[str, str], float] = {}

    def told(self, job_ids: Any) -> None:
        """A revoke of these jobs has come in."""
        for job_id in maybe_list(job_ids) or ():
            self._note(self._jobs, str(job_id), self._clock())

    def told_stamps(self, headers: Any) -> None:
        """The same by stamped headers, as Celery's command takes them: a map, or a list of `key=value`."""
        if not isinstance(headers, Mapping):
            headers = dict(header.split("=", 1) for header in headers)
        for header, values in headers.items():
            for value in maybe_list(values) or ():
                self._note(self._stamps, (str(header), str(value)), self._clock())

    def meant(self, job_id: str, stamps: Mapping[str, Any], since: float) -> bool:
        """Whether this job, or one of its stamps, was revoked at `since` or later."""
        if self._jobs.get(job_id, _NEVER) >= since:
            return True
        return any(
            self._stamps.get((header, str(value)), _NEVER) >= since
            for header, values in stamps.items()
            for value in maybe_list(values) or ()
        )

    def load(self, saved: Mapping[str, float]) -> None:
        """What `save` gave in an earlier run of this worker."""
        shift = self._clock() - self._wall_clock()
        for job_id, at in saved.items():
            self._note(self._jobs, job_id, at + shift)

    def save(self) -> dict[str, float]:
        """Job ids, and when each was revoked: seconds since the epoch."""
        shift = self._wall_clock() - self._clock()
        return {job_id: at + shift for job_id, at in self._jobs.items()}

    def _note(self, times: dict[Any, float], key: Any, at: float) -> None:
        times.pop(key, None)  # the newest come last
        times[key] = at
        while len(times) > self._most:
            del times[next(iter(times))]


def listen() -> None:
    """Have Celery's commands tell the consumer's `revokes` first. Stays for the life of the process."""
    _note_before("revoke", lambda revokes, task_id, **_: revokes.told(task_id))
    _note_before("revoke_by_stamped_headers", lambda revokes, headers, **_: revokes.told_stamps(headers))


def _note_before(name: str, note: Callable[..., None]) -> None:
    command = Panel.data[name]
    if hasattr(command, "redrive_noted"):
        return

    def noted(panel: Any, *args: Any, **kwargs: Any) -> Any:
        revokes = getattr(panel.consumer, "revokes", None)
        if revokes is not None:
            note(revokes, *args, **kwargs)
        return command(panel, *args, **kwargs)

    noted.redrive_noted = True  # type: ignore[attr-defined]
    Panel.data[name] = noted


def load(controller: Any, revokes: Revokes) -> None:
    """From the file of `--statedb`, if there is one."""
    if (persistence := getattr(controller, "_persistence", None)) is not None:
        revokes.load(persistence.db.get(SAVED) or {})


def save(controller: Any, revokes: Revokes) -> None:
    """For `load`. Celery writes the file when the process exits."""
    if (persistence := getattr(controller, "_persistence", None)) is not None:
        persistence.db[SAVED] = revokes.save()
