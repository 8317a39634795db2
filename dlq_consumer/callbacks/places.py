"""How many callbacks may be on their way to which receiver: deaf ones leave room for the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

# At a time in one process: in all, to one host and port, to one that had trouble the last time, and to all
# of these together.
AT_ONCE, PER_PLACE, PER_DEAF_PLACE, DEAF_AT_ONCE = 32, 4, 1, 16
# Deaf places that are kept in mind.
MOST_DEAF = 1_000


class Places:
    """A place is a host and port."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._deaf: set[str] = set()

    def begin(self, place: str) -> None:
        self._busy[place] += 1

    def end(self, place: str) -> None:
        self._busy[place] -= 1
        if not self._busy[place]:
            del self._busy[place]

    def heard(self, place: str, *, deaf: bool) -> None:
        """What came of one."""
        if not deaf:
            self._deaf.discard(place)
        elif len(self._deaf) < MOST_DEAF:
            self._deaf.add(place)

    def rooms(self, mixed: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, int]:
        """For how many more there is room; of places that are not named for `PER_PLACE`.

        Args:
            mixed: puts deaf places into another order each time, so that each has its turn.
        """
        left = {place: max(PER_PLACE - number, 0) for place, number in self._busy.items()}
        deaf_left = DEAF_AT_ONCE - sum(self._busy[place] for place in self._deaf)
        for place in mixed(sorted(self._deaf)):
            room = PER_DEAF_PLACE if deaf_left > 0 and not self._busy[place] else 0
            left[place] = room
            deaf_left -= room
        return left
