"""One request, sent again while that is safe and there is time. Without I/O: a shell does what it yields."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from api.client.answers import Answer, error_of
from api.client.errors import OutcomeUnknown, RedriveError, Unreachable

log = logging.getLogger("redrive.client")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
# Answers after which the same request may succeed.
_LATER = (429, 502, 503, 504)
# What a request that is sent only once may be sent again after: it was refused, and nothing done.
_REFUSED = (429,)
T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """A request without address and API key.

    `key`: the idempotency key in its body, for errors. `again`: it may be sent twice. `held_s`: how long the
    server may wait with its answer.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    again: bool = True
    held_s: float = 0.0


@dataclass(frozen=True)
class Send:
    """Send it, and give back what came, until `ends`. `timeout_s`: for each read and write."""

    request: Request
    timeout_s: float
    ends: float


@dataclass(frozen=True)
class NoAnswer:
    """`arrived`: the server may have got the request. `lasting`: it would be so the next time too."""

    error: Exception
    arrived: bool
    lasting: bool = False


@dataclass(frozen=True)
class Pause:
    seconds: float


Got: TypeAlias = Answer | NoAnswer | None
Steps: TypeAlias = Generator[Send | Pause, Got, T]


@dataclass(frozen=True)
class Patience:
    """How long a call may take in all, with everything that is sent again, and one request. Seconds."""

    total_s: float = 60.0
    request_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if not 0 < self.request_s < float("inf") or not 0 < self.total_s < float("inf"):
            raise ValueError("timeout_s and request_timeout_s must be above 0")

    def pause_s(self, failures: int) -> float:
        """After so many: twice as long each time, half of it by chance, so that clients come apart."""
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10))
        return longest * (0.5 + 0.5 * self.chance())

    def not_before_s(self, retry_after_s: float) -> float:
        """`Retry-After` and up to a tenth more, and at least a moment."""
        return retry_after_s * (1 + 0.1 * self.chance()) + FIRST_PAUSE_S * self.chance()


def call(request: Request, patience: Patience, for_s: float | None = None) -> Steps[Answer]:
    """The 2xx answer to `request`.

    Sent again: after no answer, 429, 502, 503, 504 and a 409 with `Retry-After`, and never later than
    `for_s` seconds (`patience.total_s`) beside what the server may hold the answer back. A last try that
    this cut short says less than the answer before it, which is raised then.

    Raises:
        RedriveError: of the fitting type.
    """
    for_s = patience.total_s if for_s is None else for_s
    ends = patience.clock() + for_s + request.held_s
    tries = 0
    answered: RedriveError | None = None
    while True:
        tries += 1
        whole_s = patience.request_s + request.held_s
        left = max(ends - patience.clock(), 0.001)
        got = yield Send(request, min(whole_s, left), ends)
        assert got is not None
        if isinstance(got, Answer) and 200 <= got.status < 300:
            return got
        if tries == 1:  # the server holds back no more than one answer
            ends = min(ends, patience.clock() + for_s)
        failed = _failed(request, got, tries)
        pause = next_pause(request, got, patience, tries)
        if pause is None or patience.clock() + pause >= ends:
            cause = got.error if isinstance(got, NoAnswer) else None
            if cause and answered and request.again and left < whole_s:
                failed = answered
            failed.idempotency_key = request.key
            raise failed from cause
        answered = failed if isinstance(got, Answer) else None
        log.info("%s %s: %s; again in %.1f s", request.method, request.path, _said(got), pause)
        yield Pause(pause)


def _failed(request: Request, got: Answer | NoAnswer, tries: int) -> RedriveError:
    what = f"{request.method} {request.path}: {_said(got)}"
    if isinstance(got, Answer):
        if not request.again and got.status in _LATER and got.status not in _REFUSED:
            return OutcomeUnknown(f"{what}; it may have been done")  # the answer to a commit may be lost
        return error_of(got)
    if not request.again and got.arrived:
        return OutcomeUnknown(f"{what}; it may have been done")
    unreachable = Unreachable(f"{what}, {'once' if tries == 1 else f'{tries} times'}")
    unreachable.tries = tries
    return unreachable


def next_pause(request: Request, got: Answer | NoAnswer, patience: Patience, tries: int) -> float | None:
    """Seconds until it is sent again; None when it is not."""
    if isinstance(got, NoAnswer):
        return None if got.lasting or (got.arrived and not request.again) else patience.pause_s(tries)
    after = got.retry_after_s
    again = got.status in (_LATER if request.again else _REFUSED) or (got.status == 409 and after is not None)
    if not again:
        return None
    return patience.pause_s(tries) if after is None else patience.not_before_s(after)


def _said(got: Answer | NoAnswer) -> str:
    if isinstance(got, Answer):
        return f"answered {got.status}"
    return f"no answer ({type(got.error).__name__}: {got.error})".replace(": )", ")")
