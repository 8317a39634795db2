"""The client for asyncio: does what the cores in this package yield, with httpx."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from api.client import following, http, looking, submitting
from api.client.answers import Answer
from api.client.calls import Got, NoAnswer, Patience, Pause, Send, Steps
from api.client.values import BatchResult, Job, NewJob, Payload, Replay, State, new_key

T = TypeVar("T")


class AsyncClient:
    """`Client` for asyncio: the same arguments, methods and errors, for one event loop."""

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
        self._http = httpx.AsyncClient(**http.options(url, api_key, verify))

    async def submit(
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
        job = NewJob(
            type, payload, new_key() if key is None else key, delay_s, not_before, expires, priority,
            callback_url, None if callback_on is None else tuple(callback_on),
        )  # fmt: skip
        return await self._run(submitting.submit(job, self._patience))

    async def submit_many(self, jobs: Iterable[NewJob]) -> list[BatchResult]:
        return await self._run(submitting.submit_many(jobs, self._patience))

    async def get(self, job: Job | str) -> Job:
        return await self._run(looking.get(job, self._patience))

    async def wait(self, job: Job | str, timeout_s: float | None = None) -> Job:
        return await self._run(looking.wait(job, self._patience, timeout_s))

    async def result(self, job: Job | str, timeout_s: float | None = None) -> Any:
        return (await self.wait(job, timeout_s)).result()

    async def events(self, job: Job | str) -> AsyncGenerator[Job, None]:
        """Close it (`contextlib.aclosing`) when leaving it early."""
        steps = following.follow(job, self._patience)
        got: following.Heard = None
        async with AsyncExitStack() as stack:
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
                    await stack.aclose()
                    await asyncio.sleep(step.seconds)
                elif isinstance(step, following.Listen):
                    got = await stream.open(step)
                else:
                    got = await stream.line()

    async def jobs(
        self,
        *,
        type: str | None = None,  # noqa: A002  # the API's name
        queue: str | None = None,
        state: State | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> AsyncIterator[Job]:
        cursor = None
        while True:
            found, cursor = await self._run(
                looking.page(
                    self._patience, cursor, type=type, queue=queue, state=state, since=since, until=until
                )
            )
            for job in found:
                yield job
            if cursor is None:
                return

    async def cancel(self, job: Job | str, note: str = "") -> Job:
        return await self._run(looking.cancel(job, note, self._patience))

    async def retry(self, job: Job | str, note: str = "") -> Replay:
        return await self._run(looking.retry(job, note, self._patience))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._http.base_url}>"

    async def _run(self, steps: Steps[T]) -> T:
        got: Got = None
        while True:
            try:
                step = steps.send(got)
            except StopIteration as done:
                value: T = done.value
                return value
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                got = None
            else:
                got = await self._send(step)

    async def _send(self, step: Send) -> Answer | NoAnswer:
        try:
            async with (
                asyncio.timeout(step.ends - self._patience.clock()),
                self._http.stream(**http.arguments(step.request, step.timeout_s)) as answer,
            ):
                return http.answered(answer, await answer.aread())
        except (httpx.TransportError, httpx.DecodingError) as error:
            return http.unanswered(error)
        except TimeoutError:  # it trickles
            return http.unanswered(httpx.ReadTimeout("the answer takes too long"))


class _Stream:
    """The one stream that is open, in `stack`."""

    def __init__(self, client: httpx.AsyncClient, stack: AsyncExitStack) -> None:
        self._client = client
        self._stack = stack
        self._lines: AsyncIterator[str] | None = None

    async def open(self, step: following.Listen) -> Answer | NoAnswer:
        await self._stack.aclose()
        try:
            answer = await self._stack.enter_async_context(
                self._client.stream(**http.arguments(step.request, step.timeout_s))
            )
            if answer.status_code == httpx.codes.OK:
                self._lines = answer.aiter_lines()
                return http.answered(answer)
            return http.answered(answer, await answer.aread())
        except (httpx.TransportError, httpx.DecodingError) as error:
            return http.unanswered(error)

    async def line(self) -> str | NoAnswer | None:
        assert self._lines is not None
        try:
            return await anext(self._lines, None)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return http.unanswered(error)
