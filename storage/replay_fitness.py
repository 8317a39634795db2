"""What a letter has to meet to be sent again, and in which words it is told that it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from storage.letter_filter import LetterFilter

# By kind: in a count, and of one letter.
_WORDS = {
    "duplicate": ("duplicate of another letter", "it is a duplicate of letter {}: replay that one"),
    "outstanding": ("another replay is outstanding", "replay {} is outstanding"),
    "doubtful": (
        "a replay of it may have arrived: force sends it again",
        "replay {} of it may have arrived: force sends it again",
    ),
    "state": ("state is {}", "its state is {}; only open letters are replayed"),
    "homeless": (
        "its history does not tell which queue it came from",
        "its history does not tell which queue of this vhost it came from",
    ),
    "job": ("its job is {}", "its job is {}; only a DEAD job is run again"),
    "same_job": ("a newer letter is of the same job", "letter {} is of the same job, and newer"),
    "redacted": ("values of it were redacted: dlq edit", "values of it were redacted: dlq edit"),
    "target": ("{}", "{}"),
    "not_a_work_queue": (
        "the topology has no work queue {} for its job: name another queue",
        "the topology has no work queue {} for its job: name another queue",
    ),
    "too_large": ("too large to be sent: {}", "it is too large to be sent: {}"),
    "laps": ("replayed {} times already: force sends it", "it was replayed {} times already: force sends it"),
    "in_vain": ("{}", "{}"),
    "unknown": ("not on record", "is not on record"),
}  # fmt: skip
# What another replay is in the way of, now.
CONFLICTS = frozenset({"outstanding"})

InVain = Callable[[bytes, bytes], str | None]
Choice = LetterFilter | Sequence[int]


@dataclass(frozen=True)
class Fitness:
    """What a letter has to meet besides its own state. What is None or empty is not asked.

    `to`: the queue that all are sent to in place of their own. `refused`: by queue, why nothing is sent
    there. `job_queues`: where messages of jobs may go. `largest_body` in bytes. `most_laps`: a message was
    replayed fewer times than that. `in_vain`: from properties and body, why sending it is in vain. `force`:
    an unknown outcome and `most_laps` are passed over.
    """

    to: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    job_queues: frozenset[str] | None = None
    largest_body: int | None = None
    most_laps: int | None = None
    in_vain: InVain | None = None
    force: bool = False


ANY = Fitness()


@dataclass(frozen=True)
class Unfit:
    """Why one letter is not sent. `about`: what the words of its kind leave open."""

    letter_id: int
    kind: str
    about: str | None

    @property
    def why(self) -> str:
        return _WORDS[self.kind][1].format(self.about)

    @property
    def kind_words(self) -> str:
        """The same for every letter of its kind."""
        return _WORDS[self.kind][0].format(self.about)
