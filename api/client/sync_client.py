"""The client for threads: does what the cores in this package yield, with httpx."""

from __future__ import annotations

import ssl
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from api.client import following, http, looking, submitting
from api.client.answers import Answer
from api.client.calls import Got, NoAnswer, Patience, Pause, Send, Steps
from api.client.values import BatchResult, Job, NewJob, Payload, Replay, State, new_key

T = TypeVar("T")


class Client:
    """One API, for one program; may be shared by threads. Close it, or use it in a `with`.

    Args:
        url: such as `https://jobs.example.com`.
        api_key: with the scopes that the calls need: `submit`, `read`, `operate`.
        timeout_s: seconds that a call may take with everything that is sent again.
        request_timeout_s: seconds without a byte after which one request is given up.
        verify: False, or a context with one's own certificates.

    Every method raises RedriveError, of the fitting type.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        timeout_s: float = 60.0,
        request_timeout_s: float = 10.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        """Raises ValueError: an argument cannot be."""
        self._patience = Patience(timeout_s, request_timeout_s)
        self._http = httpx.Client(**http.options(url, api_key, verify))

    def submit(
        self,
        type: str,  # noqa: A002  # the API's name
        payload: Payload,
        *,
        key: str | None = None,
        delay_s: float | None = None,
        not_before: datetime | None = None,
        expires: datetime | None = None,
        priority: int | None = None,
        callback_url: str | None = None,
        callback_on: Sequence[State] | None = None,
    ) -> Job:
        """The accepted job. Without a `key` each call makes a job of its own, however often it is sent.

        Raises:
            Invalid, IdempotencyConflict, NotJson: it was not accepted.
            RedriveError: it may have been; submit it again with `error.idempotency_key`.
        """
        job = NewJob(
            type, payload, new_key() if key is None else key, delay_s, not_before, expires, priority,
            callback_url, None if callback_on is None else tuple(callback_on),
        )  # fmt: skip
        return self._run(submitting.submit(job, self._patience))

    def submit_many(self, jobs: Iterable[NewJob]) -> list[BatchResult]:
        """`Accepted` or `Refused` for each, in order. Sent by the thousand; `timeout_s` is for each of them.

        Raises:
            BatchUnfinished: of some jobs nothing is known.
        """
        return self._run(submitting.submit_many(jobs, self._patience))

    def get(self, job: Job | str) -> Job:
        """The job as it is now."""
        return self._run(looking.get(job, self._patience))

    def wait(self, job: Job | str, timeout_s: float | None = None) -> Job:
        """The job once it has ended.

        Raises:
            WaitTimeout: not within `timeout_s` seconds.
        """
        return self._run(looking.wait(job, self._patience, timeout_s))

    def result(self, job: Job | str, timeout_s: float | None = None) -> Any:
        """What the job's task returned, once it has ended.

        Raises:
            JobDead, JobCancelled: it has none.
            WaitTimeout: not within `timeout_s` seconds.
        """
        return self.wait(job, timeout_s).result()

    def events(self, job: Job | str) -> Generator[Job, None, None]:
        """The job now and after each change, until it has ended; goes on where it was after a cut."""
        steps = following.follow(job, self._patience)
        got: following.Heard = None
        with ExitStack() as stack:
            stream = _Stream(self._http, stack)
            while True:
                try:
                    step = steps.send(got)
                except StopIteration:
                    return
                got = None
                if isinstance(step, following.Tell):
                    yield step.job
                elif isinstance(step, Pause):
                    stack.close()
                    time.sleep(step.seconds)
                elif isinstance(step, following.Listen):
                    got = stream.open(step)
                else:
                    got = stream.line()

    def jobs(
        self,
        *,
        type: str | None = None,  # noqa: A002  # the API's name
        queue: str | None = None,
        state: State | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Iterator[Job]:
        """Jobs, the last accepted first, read page by page; `since` <= time of acceptance < `until`."""
        cursor = None
        while True:
            found, cursor = self._run(
                looking.page(
                    self._patience, cursor, type=type, queue=queue, state=state, since=since, until=until
                )
            )
            yield from found
            if cursor is None:
                return

    def cancel(self, job: Job | str, note: str = "") -> Job:
        """CANCELLED, or, when it runs, asked to stop.

        Raises:
            NotAllowed: it has ended otherwise.
        """
        return self._run(looking.cancel(job, note, self._patience))

    def retry(self, job: Job | str, note: str = "") -> Replay:
        """Run a dead job again.

        Raises:
            NotAllowed: it is not dead, or its letter is gone.
            OutcomeUnknown: the answer was lost, and it is not asked twice.
        """
        return self._run(looking.retry(job, note, self._patience))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._http.base_url}>"

    def _run(self, steps: Steps[T]) -> T:
        got: Got = None
        while True:
            try:
                step = steps.send(got)
            except StopIteration as done:
                value: T = done.value
                return value
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                got = None
            else:
                got = self._send(step)

    def _send(self, step: Send) -> Answer | NoAnswer:
        try:
            with self._http.stream(**http.arguments(step.request, step.timeout_s)) as answer:
                body = bytearray()
                for chunk in answer.iter_bytes():
                    body += chunk
                    if self._patience.clock() > step.ends:  # it trickles
                        raise httpx.ReadTimeout("the answer takes too long", request=answer.request)
                return http.answered(answer, bytes(body))
        except (httpx.TransportError, httpx.DecodingError) as error:
            return http.unanswered(error)


class _Stream:
    """The one stream that is open, in `stack`."""

    def __init__(self, client: httpx.Client, stack: ExitStack) -> None:
        self._client = client
        self._stack = stack
        self._lines: Iterator[str] = iter(())

    def open(self, step: following.Listen) -> Answer | NoAnswer:
        self._stack.close()
        try:
            answer = self._stack.enter_context(
                self._client.stream(**http.arguments(step.request, step.timeout_s))
            )
            if answer.status_code == httpx.codes.OK:
                self._lines = answer.iter_lines()
                return http.answered(answer)
            return http.answered(answer, answer.read())
        except (httpx.TransportError, httpx.DecodingError) as error:
            return http.unanswered(error)

    def line(self) -> str | NoAnswer | None:
        try:
            return next(self._lines, None)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return http.unanswered(error)
