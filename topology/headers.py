"""The headers that are ours. None starts with `x-`: those are the broker's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

# "<generation>.<attempt>": which run of the job this message stands for.
ATTEMPT = "redrive-attempt"
# Unix milliseconds: go round the ladder again until then.
DUE = "redrive-due"
# The token of the replay that sent this message.
REPLAY = "redrive-replay"
# The token of any other confirmed publish, so that a basic.return can be matched with it.
PUBLISH = "redrive-publish"
# How the run of this message ended, where that could not be recorded; see workers/handing_over.py.
OUTCOME = "redrive-outcome"
# The uuid of a probe of `topology verify`; see topology/probe.py.
PROBE = "redrive-probe"
# While a queue is migrated: the property list and the routing key that its message has, as bytes.
MOVED = "redrive-moved"
MOVED_KEY = "redrive-moved-key"

# Written by a broker when it dead-letters; stripped before any republish, since a broker up to 3.12
# (and again from 3.13.3) would go on counting from them.
DEATH_HEADERS = (
    "x-death",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-first-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
    "x-last-death-exchange",
)
# Set by a quorum queue on redelivery.
DELIVERY_COUNTERS = ("x-delivery-count", "x-acquired-count")

_ATTEMPT = re.compile(r"([1-9][0-9]{0,9})\.([1-9][0-9]{0,9})")
_LONGEST_ATTEMPT = 21
# Postgres keeps both as 4-byte integers. The attempt after the last one that workers accept can be read.
LAST_ATTEMPT = 1_000_000_000


@dataclass(frozen=True, order=True)
class Attempt:
    """One run of a job: attempts count from 1 in each generation, and a replay starts a new generation."""

    generation: int = 1
    attempt: int = 1

    def __str__(self) -> str:
        return f"{self.generation}.{self.attempt}"

    def next(self) -> Attempt:
        return Attempt(self.generation, self.attempt + 1)


FIRST = Attempt()


@lru_cache(maxsize=1_024)
def _attempt(value: str) -> Attempt | None:
    match = _ATTEMPT.fullmatch(value)
    if match is None:
        return None
    found = Attempt(int(match[1]), int(match[2]))
    return found if max(found.generation, found.attempt) <= LAST_ATTEMPT else None


def parse_attempt(value: object) -> Attempt | None:
    """The attempt that a header value names, or None for anything else."""
    # Longer than any is, it would only fill the memory of those that were read.
    return _attempt(value) if isinstance(value, str) and len(value) <= _LONGEST_ATTEMPT else None
