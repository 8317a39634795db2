"""What the relay of this process has done so far."""

from __future__ import annotations

from topology.prometheus.counting import Counter, Histogram
from topology.prometheus.text import Family

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RelayCounts:
    """By the broker's answer; `undecided`: none came, the message is published again."""

    def __init__(self) -> None:
        self._published = Counter(
            "redrive_relay_messages_total", "Messages that the relay published, by answer.", ("answer",)
        )
        self._batches = Histogram(
            "redrive_relay_batch_seconds", "From the publish of a batch to its last confirm.", (), BOUNDS_S
        )
        for answer in ("confirmed", "refused", "undecided"):
            self._published.start(answer)

    def batch(self, seconds: float, *, confirmed: int, refused: int, undecided: int) -> None:
        self._batches.observe(seconds)
        self._published.add("confirmed", number=confirmed)
        self._published.add("refused", number=refused)
        self._published.add("undecided", number=undecided)

    def families(self) -> list[Family]:
        return [self._published.family(), self._batches.family()]
