"""What is wrong with one argument, as data: the rules make findings of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ProblemKind = Literal[
    "unknown",  # no such argument or key
    "unsupported",  # known, not for this queue type
    "wrong_type",  # a string where a number is wanted
    "bad_value",  # a negative TTL, an overflow that does not exist
    "incomplete",  # needs another argument beside it
    "removed",  # of an older RabbitMQ: means nothing any more
    "plugin",  # needs a plugin that may not be there
]


@dataclass(frozen=True)
class Problem:
    """One argument of a queue or exchange, or one key of a policy, that is not right.

    Attributes:
        name: the argument or key, e.g. `x-message-ttl`; or a field, `durable`, `type`.
        expected: what would be right, as words: `a whole number of at least 0`.
        refused: the broker refuses the declaration, and an import stops there; otherwise the argument is kept
            and does nothing.
    """

    kind: ProblemKind
    name: str
    value: object
    expected: str
    refused: bool
