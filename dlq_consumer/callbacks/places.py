"""How many callbacks may be on their way to which receiver: deaf ones leave room for the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from storage.callbacks import Room

# At a time in one process: in all, to one host and port, to one that had trouble the last time, and to all
# together that are not known to be prompt: of thousands that nobody has called yet each may be deaf.
AT_ONCE, PER_PLACE, PER_DEAF_PLACE, DOUBTFUL_AT_ONCE = 32, 4, 1, 16
# An answer after more seconds than this is no prompt one.
PROMPT_S = 5.0
# Places that are kept in mind, of either kind: the last ones. What is forgotten is doubtful.
MOST_KNOWN = 1_000


class Places:
    """A place is a host and port."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        # Dicts, for their order: the first is the one that was not heard of for longest.
        self._deaf: dict[str, None] = {}
        self._prompt: dict[str, None] = {}

    def begin(self, place: str, caller: str = "") -> None:
        self._busy[place] += 1
        self._calls[caller, place] += 1

    def end(self, place: str, caller: str = "") -> None:
        self._busy[place] -= 1
        self._calls[caller, place] -= 1
        self._busy, self._calls = +self._busy, +self._calls  # without zeros

    def heard(self, place: str, *, deaf: bool, took_s: float) -> None:
        """What came of one."""
        self._deaf.pop(place, None)
        self._prompt.pop(place, None)
        kind = self._deaf if deaf else self._prompt
        if deaf or took_s <= PROMPT_S:
            kind[place] = None
        if len(kind) > MOST_KNOWN:
            del kind[next(iter(kind))]

    @property
    def doubtful(self) -> int:
        """For how many more there is room of those that are not known to be prompt."""
        busy = sum(number for place, number in self._busy.items() if place not in self._prompt)
        return max(DOUBTFUL_AT_ONCE - busy, 0)

    @property
    def callers(self) -> Mapping[str, int]:
        """How many of each are on their way to places that are not known to be prompt."""
        found: Counter[str] = Counter()
        for (caller, place), number in self._calls.items():
            if place not in self._prompt:
                found[caller] += number
        return found

    def rooms(self, mixed: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, Room]:
        """Of each place that is known; of others there is room for `PER_PLACE`.

        Args:
            mixed: puts deaf places into another order each time, so that each has its turn.
        """
        known = dict.fromkeys((*self._prompt, *self._busy))
        rooms = {place: Room(max(PER_PLACE - self._busy[place], 0), place in self._prompt) for place in known}
        left = self.doubtful
        for place in mixed(sorted(self._deaf)):
            free = PER_DEAF_PLACE if left > 0 and not self._busy[place] else 0
            rooms[place] = Room(free, prompt=False)
            left -= free
        return rooms
