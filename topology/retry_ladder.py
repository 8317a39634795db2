"""The retry ladder of a work queue, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from topology.errors import InvalidTopologyError
from topology.field_checks import check_name, check_number, check_whole

MOST_STEPS = 20
# RabbitMQ refuses a TTL of 2^32 ms and more.
LONGEST_TTL_MS = 2**32 - 1
# `up_to` counts no further: more than any check lets pass.
_NO_LADDER_STEPS = 64


@dataclass(frozen=True)
class Ladder:
    """A binary retry ladder: step *n* delays by `tick_ms` x 2^n milliseconds.

    A delay is a number of ticks; the steps of its set bits are passed one after the other, inside
    the broker alone. With the defaults one lap delays between 250 ms and 1,023.75 s.

    Checked by the work queue that it is given to, so that an error can name the queue.

    Args:
        shared: a name; the queues whose ladders give the same one share its steps instead of each having
            its own. For topologies of very many queues.
        attempts: how often a job is tried where its task says nothing (`max_retries` + 1).
        jitter: the share of a delay that is drawn at random where the task asks for jitter: at 0.5 a
            delay of 8 s becomes 4 to 8 s.
    """

    tick_ms: int = 250
    steps: int = 12
    shared: str | None = None
    attempts: int = 4
    jitter: float = 0.5

    @classmethod
    def up_to(cls, top_s: float, tick_ms: int = 250, **others: Any) -> Ladder:
        """The ladder whose top step is the first of at least `top_s` seconds.

        Raises:
            InvalidTopologyError: `top_s` or `tick_ms` is no positive number.
        """
        check_number("", "ladder.top_s", top_s, 0.001, float("inf"))
        check_number("", "ladder.tick_ms", tick_ms, 0.001, float("inf"))
        steps = 1
        while tick_ms * 2 ** (steps - 1) < top_s * 1000 and steps < _NO_LADDER_STEPS:
            steps += 1
        return cls(tick_ms, steps, **others)

    @property
    def shape(self) -> str:
        """The first word of every routing and binding key.

        A former ladder of another shape may have had steps of the same names; its bindings stay, and would
        read these keys' bits in another place and copy messages.
        """
        return f"{self.steps}x{self.tick_ms}"

    def step_ms(self, step: int) -> int:
        """The nominal delay of step `step`, in milliseconds."""
        return self.tick_ms << step

    def check(self, owner: str) -> None:
        """Raises InvalidTopologyError, which names `owner` and the field."""
        check_whole(owner, "ladder.tick_ms", self.tick_ms, 10, 60_000)
        check_whole(owner, "ladder.steps", self.steps, 1, MOST_STEPS)
        check_whole(owner, "ladder.attempts", self.attempts, 1, 1_000)
        check_number(owner, "ladder.jitter", self.jitter, 0, 1)
        if (top_ms := self.step_ms(self.steps - 1)) > LONGEST_TTL_MS:
            raise InvalidTopologyError(
                f"{owner}: ladder.steps is {self.steps}: the top step of {top_ms:,} ms is over "
                f"the broker's longest TTL of {LONGEST_TTL_MS:,} ms"
            )
        if self.shared is not None:
            check_name(owner, "ladder.shared", self.shared, self.steps)
