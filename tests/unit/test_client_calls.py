"""What the client sends again, when, and what it raises; without a network."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, TypeVar

import httpx
import pytest

from api.client import errors, http, looking, submitting
from api.client.answers import Answer
from api.client.calls import NoAnswer, Patience, Pause, Request, Send, call
from api.client.values import Accepted, Job, NewJob, Refused, Unknown

T = TypeVar("T")
TIME = "2026-01-31T12:00:00+00:00"
JOB = {
    "id": "j1", "type": "t", "queue": "q", "state": "PENDING", "attempt": 1, "created_at": TIME,
    "started_at": None, "finished_at": None,
}  # fmt: skip
CUT = NoAnswer(httpx.ReadError("reset"), arrived=True)
REFUSED = NoAnswer(httpx.ConnectError("refused"), arrived=False)


def answer(status: int, content: Any = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, named, json.dumps(content).encode())


def problem(status: int, kind: str = "k", **more: Any) -> Answer:
    headers = {"retry_after": str(more.pop("retry_after"))} if "retry_after" in more else {}
    said = {"type": f"urn:redrive:problem:{kind}", "status": status, "detail": "why", "errors": []}
    return answer(status, said | more, **headers)


@dataclass
class Shell:
    """Does what a call asks for: gives the answers, each after `each_s`, and lets time pass."""

    answers: Sequence[Answer | NoAnswer]
    each_s: float = 0.0
    now: float = 1_000.0
    sent: list[Send] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def patience(self) -> Patience:
        return Patience(60.0, 10.0, clock=lambda: self.now, chance=lambda: 0.5)

    def run(self, steps: Generator[Send | Pause, Answer | NoAnswer | None, T]) -> T:
        got: Answer | NoAnswer | None = None
        while True:
            try:
                step = steps.send(got)
            except StopIteration as done:
                value: T = done.value
                return value
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
                got = None
            else:
                got = self.answer_to(step)
                self.sent.append(step)
                self.now += self.each_s

    def answer_to(self, step: Send) -> Answer | NoAnswer:
        return self.answers[min(len(self.sent), len(self.answers) - 1)]


POST = Request("POST", "/jobs", key="k")
ONCE = Request("POST", "/jobs/1/retry", again=False)


@pytest.mark.parametrize(
    "first",
    [REFUSED, CUT, NoAnswer(httpx.ReadTimeout("slow"), arrived=True), problem(429), problem(502),
     problem(503), problem(504), problem(409, retry_after=1), answer(502, "<html>")],
)  # fmt: skip
def test_what_may_come_again_is_sent_again_as_it_was(first: Answer | NoAnswer) -> None:
    shell = Shell([first, first, answer(202)])
    assert shell.run(call(POST, shell.patience)).status == 202
    assert [step.request for step in shell.sent] == [POST] * 3
    assert len(shell.pauses) == 2


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 413, 415, 422, 500, 501])
def test_other_answers_are_final(status: int) -> None:
    shell = Shell([problem(status), answer(202)])
    with pytest.raises(errors.RedriveError) as raised:
        shell.run(call(POST, shell.patience))
    assert len(shell.sent) == 1
    assert raised.value.idempotency_key == "k"


def test_what_must_not_be_done_twice_is_sent_again_only_if_it_was_not_done() -> None:
    for first in (REFUSED, problem(429), problem(409, retry_after=1)):
        shell = Shell([first, answer(202)])
        assert shell.run(call(ONCE, shell.patience)).status == 202
    for first, expected in ((CUT, errors.OutcomeUnknown), (problem(503), errors.OutcomeUnknown)):
        shell = Shell([first, answer(202)])
        with pytest.raises(expected):
            shell.run(call(ONCE, shell.patience))
        assert len(shell.sent) == 1


def test_pauses_grow_to_a_bound_and_the_whole_ends_in_time() -> None:
    shell = Shell([REFUSED])
    with pytest.raises(errors.Unreachable) as raised:
        shell.run(call(POST, shell.patience))
    assert shell.pauses[:4] == [pytest.approx(0.15 * 2**n) for n in range(4)]
    assert max(shell.pauses) == 3.75
    assert 50 < shell.now - 1_000 < 60
    assert raised.value.tries == len(shell.sent) > 10
    slow = Shell([CUT], each_s=10.0)
    with pytest.raises(errors.Unreachable):
        slow.run(call(POST, slow.patience))
    # Also the last request has only the time that is left.
    assert [step.timeout_s for step in slow.sent][-1] < 10.0
    assert all(step.timeout_s <= step.ends - 1_000 for step in slow.sent)


def test_retry_after_is_kept_and_one_beyond_the_time_is_not_awaited() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    for header, least, most in (("7", 7, 8), (date, 18, 23), ("0", 0, 0.3), ("soon", 0, 0.3)):
        shell = Shell([problem(503, retry_after=header), answer(202)])
        shell.run(call(POST, shell.patience))
        assert least <= shell.pauses[0] <= most, header
    for header in ("61", "9" * 400):
        shell = Shell([problem(429, retry_after=header)])
        with pytest.raises(errors.RateLimited) as raised:
            shell.run(call(POST, shell.patience))
        assert (shell.pauses, raised.value.retry_after_s) == ([], float(header[:9]))


def test_an_answer_is_raised_if_only_the_end_of_the_time_cuts_the_try_after_it() -> None:
    unavailable = problem(503, "outbox-full")
    cut_short = Shell([unavailable, unavailable, CUT], each_s=28.0)
    with pytest.raises(errors.Unavailable) as raised:
        cut_short.run(call(POST, cut_short.patience))
    assert (raised.value.idempotency_key, raised.value.__cause__) == ("k", CUT.error)
    assert len(cut_short.sent) == 3
    assert cut_short.sent[2].timeout_s < 10.0
    away = Shell([unavailable, CUT, CUT], each_s=28.0)
    with pytest.raises(errors.Unreachable):
        away.run(call(POST, away.patience))


def test_a_problem_is_raised_as_its_type_with_its_fields() -> None:
    said = {"errors": [{"field": "payload.a", "message": "is wrong"}], "more_errors": 3}
    shell = Shell([problem(422, "invalid", **said)])
    with pytest.raises(errors.Invalid) as raised:
        shell.run(call(POST, shell.patience))
    error = raised.value
    assert (error.status, error.kind, error.detail, error.more_errors) == (422, "invalid", "why", 3)
    assert error.errors == (errors.FieldFault("payload.a", "is wrong"),)
    assert str(error) == "422 invalid: why; payload.a: is wrong"
    for status, kind, expected in (
        (422, "idempotency-conflict", errors.IdempotencyConflict), (401, "", errors.Unauthorized),
        (403, "scope", errors.Forbidden), (404, "unknown-job", errors.NotFound),
        (409, "not-allowed", errors.NotAllowed), (500, "internal", errors.ServerFault),
    ):  # fmt: skip
        shell = Shell([problem(status, kind)])
        with pytest.raises(expected):
            shell.run(call(POST, shell.patience))


def test_another_server_s_answer_is_told_as_that() -> None:
    for odd in (Answer(200, {}, b"<html>"), answer(200, [1]), answer(200, JOB | {"created_at": "x"})):
        shell = Shell([odd])
        with pytest.raises(errors.UnexpectedAnswer):
            shell.run(looking.get("j1", shell.patience))
    shell = Shell([Answer(404, {}, b"\xff")])
    with pytest.raises(errors.NotFound, match="answered 404 Not Found"):
        shell.run(looking.get("j1", shell.patience))


def test_a_job_is_waited_for_in_turns_until_its_end_or_the_time() -> None:
    done = answer(200, JOB | {"state": "SUCCEEDED", "result": 5})
    shell = Shell([answer(200, JOB), CUT, problem(503, retry_after=5), done], each_s=30)
    assert shell.run(looking.wait("j1", shell.patience, None)).result() == 5
    shell = Shell([answer(200, JOB)], each_s=30)
    with pytest.raises(errors.WaitTimeout) as raised:
        shell.run(looking.wait("j1", shell.patience, 100))
    assert raised.value.job is not None
    assert raised.value.job.state == "PENDING"
    assert [step.request.query["wait"] for step in shell.sent] == ["60.000", "60.000", "40.000", "10.000"]
    assert all(step.timeout_s > float(step.request.query["wait"]) for step in shell.sent)
    # A server that stops answers at once: that makes no storm.
    shell = Shell([answer(200, JOB)])
    with pytest.raises(errors.WaitTimeout):
        shell.run(looking.wait("j1", shell.patience, 10))
    assert len(shell.sent) < 100


def many(count: int, size: int = 0) -> list[NewJob]:
    return [NewJob("t", {"n": number, "text": "x" * size}, key=f"k{number}") for number in range(count)]


def accepted(count: int) -> Answer:
    each = {"status": 202, "id": "j", "location": "/jobs/j", "replayed": False}
    return answer(202, {"accepted": count, "replayed": 0, "refused": 0, "results": [each] * count})


class Taking(Shell):
    """Accepts each batch but those that hold `poison`."""

    poison = b"\0"

    def answer_to(self, step: Send) -> Answer | NoAnswer:
        body = step.request.body or b""
        return problem(413) if self.poison in body else accepted(body.count(b'"type"'))


def sizes(shell: Shell) -> list[int]:
    return [len(json.loads(step.request.body or b"")["jobs"]) for step in shell.sent]


def test_many_jobs_go_by_the_thousand_and_by_their_size() -> None:
    shell = Taking([])
    results = shell.run(submitting.submit_many(many(2_500), shell.patience))
    assert [result.job.key for result in results] == [f"k{number}" for number in range(2_500)]
    assert sizes(shell) == [1_000, 1_000, 500]
    shell = Taking([])
    shell.run(submitting.submit_many(many(9, 1_000_000), shell.patience))
    assert sizes(shell) == [4, 4, 1]
    shell = Taking([])
    assert shell.run(submitting.submit_many([], shell.patience)) == []
    assert shell.sent == []


def test_a_job_for_which_a_whole_batch_is_refused_is_found() -> None:
    shell = Taking([])
    shell.poison = b'"n":5,'
    results = shell.run(submitting.submit_many(many(8), shell.patience))
    assert [type(result) for result in results] == [Accepted] * 5 + [Refused] + [Accepted] * 2
    assert sizes(shell) == [8, 4, 4, 2, 1, 1, 2]


def test_after_a_lost_answer_only_what_is_unknown_is_left() -> None:
    shell = Shell([accepted(1_000), CUT], each_s=1.0)
    with pytest.raises(errors.BatchUnfinished) as raised:
        shell.run(submitting.submit_many(many(1_500), shell.patience))
    error = raised.value
    assert [type(result) for result in error.results] == [Accepted] * 1_000 + [Unknown] * 500
    assert [job.key for job in error.unfinished] == [f"k{number}" for number in range(1_000, 1_500)]
    # The first thousand were not sent again.
    assert set(sizes(shell)[1:]) == {500}


def test_what_cannot_be_written_as_json_is_refused_alone_and_not_sent() -> None:
    odd: list[Any] = [
        {"a": float("nan")},
        {"a": "\ud800"},
        {"a": datetime.now(UTC)},
        [1],
        None,
        {"a": {1, 2}},
    ]
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    jobs = [NewJob("t", payload) for payload in [*odd, deep]]
    shell = Taking([])
    results = shell.run(submitting.submit_many([*jobs, NewJob("t", {})], shell.patience))
    assert [type(result) for result in results] == [Refused] * 7 + [Accepted]
    assert all(isinstance(each.error, errors.NotJson) for each in results if isinstance(each, Refused))
    assert sizes(shell) == [1]
    with pytest.raises(errors.NotJson) as raised:
        shell.run(submitting.submit(jobs[0], shell.patience))
    assert raised.value.idempotency_key == jobs[0].key


def test_a_job_tells_its_result_or_why_it_has_none() -> None:
    for state, expected in (
        ("DEAD", errors.JobDead), ("CANCELLED", errors.JobCancelled), ("RUNNING", errors.NotFinished),
    ):  # fmt: skip
        job = Job.of(JOB | {"state": state, "reason": "exhausted"})
        with pytest.raises(expected) as raised:
            job.result()
        assert raised.value.job == job
    assert Job.of(JOB | {"state": "SUCCEEDED", "result": None}).result() is None


def test_an_id_cannot_lead_elsewhere() -> None:
    assert looking.path_of("a/../b?c#d%", "events") == "/jobs/a%2F..%2Fb%3Fc%23d%25/events"
    for job_id in ("", ".", ".."):
        with pytest.raises(ValueError, match="no id"):
            looking.path_of(job_id)


def test_what_would_fail_the_next_time_too_is_not_tried_again() -> None:
    certificate = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
    shell = Shell([http.unanswered(certificate)])
    with pytest.raises(errors.Unreachable):
        shell.run(call(POST, shell.patience))
    assert len(shell.sent) == 1


def test_a_callback_is_asked_for_and_its_url_is_not_shown() -> None:
    job = NewJob("t", {}, "k", callback_url="https://h.example/?token=s3cret", callback_on=("DEAD",))
    assert json.loads(submitting.encoded(job)) == {
        "type": "t", "payload": {}, "idempotency_key": "k", "callback_url": job.callback_url,
        "callback_on": ["DEAD"],
    }  # fmt: skip
    assert "s3cret" not in repr(job)
