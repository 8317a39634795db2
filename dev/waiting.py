"""Waiting for something to be seen, with a line every two seconds that says for what."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dev.errors import DevError

T = TypeVar("T")
Say = Callable[[str], None]
TELL_S = 2.0
POLL_S = 0.1


class NotYet(Exception):
    """Raised by a question: not now, and this is what was seen instead."""


class WaitedInVain(DevError):
    """The deadline passed; the message tells what was waited for and what was seen last."""


def wait_for(
    what: str,
    ask: Callable[[], T],
    *,
    seconds: float,
    say: Say,
    alive: Callable[[], None] = lambda: None,
    every: float = POLL_S,
) -> T:
    """Calls `ask` until it returns instead of raising NotYet, and returns what it returned.

    `alive` is called between two tries and raises when waiting has become pointless.
    Raises WaitedInVain after `seconds`.
    """
    started = told = time.monotonic()
    while True:
        try:
            return ask()
        except NotYet as seen:
            last = str(seen)
        alive()
        now = time.monotonic()
        if now - started >= seconds:
            raise WaitedInVain(f"waited {seconds:.0f} s in vain for {what}; seen last: {last}")
        if now - told >= TELL_S:
            told = now
            say(f"… waiting for {what} ({now - started:.0f} s): {last}")
        time.sleep(every)
