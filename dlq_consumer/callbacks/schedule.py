"""When a callback that was not taken is sent again, and when not any more."""

from __future__ import annotations

import math

from outbound.poster import Answer
from outbound.retry_after import retry_after_s

FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 3_600.0
# Of Retry-After.
LONGEST_ASKED_S = 86_400.0
# So that callbacks that failed together come back spread.
JITTER = 0.2
# Of looks for callbacks: one goes by all places that any waits for, 3 µs each.
SHORT_LOOK_S, PAUSES, LONGEST_PAUSE_S = 0.02, 4, 10.0
# The last about 22 hours after the first.
MOST_TRIES = 32


def retry_in_s(tries: int, chance: float, asked: str | None = None) -> float:
    """Seconds until the next try after `tries` failed ones: 5, 10, 20, … up to an hour, a fifth more or less
    by `chance` (0 to 1), and no sooner than the receiver `asked` for in Retry-After.
    """
    pause_s = min(math.ldexp(FIRST_RETRY_S, min(tries - 1, 20)), LONGEST_RETRY_S)
    spread_s = pause_s * (1 - JITTER + 2 * JITTER * chance)
    return max(spread_s, retry_after_s(asked, default_s=0.0, longest_s=LONGEST_ASKED_S))


def pause_s(look_s: float) -> float:
    """Seconds until the next look after one that took so long: a flood of places takes a fifth of one
    connection at most."""
    return 0.0 if look_s <= SHORT_LOOK_S else min(PAUSES * look_s, LONGEST_PAUSE_S)


def why_dead(tries: int, answer: Answer | None) -> str | None:
    """Why it is given up after this try; None where it is not."""
    if answer is not None and answer.status == 410:
        return "the receiver answered 410: gone"
    return f"not taken in {tries} tries" if tries >= MOST_TRIES else None


def is_deaf(answer: Answer | None) -> bool:
    """Whether the whole receiver has trouble, and not with this callback alone."""
    return answer is None or answer.status == 429 or answer.status >= 500
