"""Jobs looked at, waited for, and acted upon."""

from __future__ import annotations

import json
import math
from datetime import datetime
from urllib.parse import quote

from api.client.answers import Answer
from api.client.calls import Patience, Pause, Request, Steps, call
from api.client.errors import UnexpectedAnswer, WaitTimeout
from api.client.submitting import JSON_TYPE
from api.client.values import Job, Replay, State

# The longest that the server waits with one answer, seconds.
HELD_S = 60.0
PAGE = 500


def path_of(job: Job | str, *more: str) -> str:
    job_id = job.id if isinstance(job, Job) else job
    # "." and ".." would be taken out of the path.
    if job_id.strip(".") == "":
        raise ValueError(f"{job_id!r} is no id of a job")
    return "/".join(("/jobs", quote(job_id, safe=""), *more))


def get(job: Job | str, patience: Patience) -> Steps[Job]:
    answer = yield from call(Request("GET", path_of(job)), patience)
    return Job.of(answer.json)


def wait(job: Job | str, patience: Patience, for_s: float | None) -> Steps[Job]:
    """The job once it has ended.

    Raises:
        WaitTimeout: not within `for_s` seconds.
        RedriveError: no good answer for so long and `request_s` more, or for `total_s` where there is no end.
    """
    if for_s is not None and math.isnan(for_s):
        raise ValueError("timeout_s is no number")
    clock = patience.clock
    ends = None if for_s is None else clock() + for_s
    last: Job | None = None
    while True:
        asked, left = clock(), None if ends is None else max(ends - clock(), 0.0)
        held = HELD_S if left is None else min(HELD_S, left)
        request = Request("GET", path_of(job), {"wait": f"{held:.3f}"}, held_s=held)
        budget = None if left is None else left - held + patience.request_s
        last = Job.of((yield from call(request, patience, budget)).json)
        if last.ended:
            return last
        if ends is not None and clock() >= ends:
            raise WaitTimeout(f"job {last.id} ({last.type}) is {last.state} after {for_s:g} s", last)
        if clock() - asked < held / 2:  # a server that stops answers at once
            yield Pause(patience.pause_s(1))


def page(
    patience: Patience,
    cursor: str | None,
    *,
    type: str | None = None,  # noqa: A002  # the API's name
    queue: str | None = None,
    state: State | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
) -> Steps[tuple[list[Job], str | None]]:
    """Jobs, and where the next page begins."""
    given = {
        "type": type,
        "queue": queue,
        "state": state,
        "since": _time(since),
        "until": _time(until),
        "limit": str(PAGE),
        "cursor": cursor,
    }
    query = {name: value for name, value in given.items() if value is not None}
    shown = (yield from call(Request("GET", "/jobs", query), patience)).json
    try:
        return [Job.of(each) for each in shown["jobs"]], shown["next_cursor"]
    except (KeyError, TypeError) as error:
        raise UnexpectedAnswer(f"the answer is no list of jobs: {error!r}") from error


def cancel(job: Job | str, note: str, patience: Patience) -> Steps[Job]:
    # May be sent twice: a job that is cancelled stays so, and one that runs is asked once.
    return Job.of((yield from _act(job, "cancel", note, patience, again=True)).json)


def retry(job: Job | str, note: str, patience: Patience) -> Steps[Replay]:
    # Not to be sent twice: it could run the job again that was run again and died again meanwhile.
    return Replay.of((yield from _act(job, "retry", note, patience, again=False)).json)


def _act(job: Job | str, what: str, note: str, patience: Patience, *, again: bool) -> Steps[Answer]:
    body = json.dumps({"note": note}).encode()
    request = Request("POST", path_of(job, what), body=body, headers=JSON_TYPE, again=again)
    return (yield from call(request, patience))


def _time(at: datetime | str | None) -> str | None:
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"{at} has no zone")
        return at.isoformat()
    return at
