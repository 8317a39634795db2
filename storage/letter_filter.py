"""Which dead letters: one filter for every statement that reads or changes several."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import product

from storage.text import safe_text

STATES = ("open", "replaying", "replayed", "discarded", "quarantined")
# Why a letter died.
REASONS = (
    "exception", "exhausted", "rejected", "soft_timeout", "hard_timeout", "worker_lost", "memory",
    "undecodable", "malformed", "unknown_task", "expired", "revoked", "delivery_limit", "maxlen",
    "unroutable", "foreign", "unknown",
)  # fmt: skip
# Most letters lie in the dead-letter queue of their work queue; the others have an index of their own.
_DLQ = ".dlq"
FOREIGN_DLQ = f"l.dlq <> l.queue || '{_DLQ}'"
# Nobody has decided on these, or nobody knows what came of it: retention never takes them.
_WAITING = "l.state IN ('open', 'replaying', 'quarantined')"
# Of a replayed letter's item `i`: nobody knows what came of it, nor of the letter by a later replay.
UNTOLD = """(i.outcome = 'unknown' AND NOT EXISTS (
    SELECT 1 FROM redrive.replay_items k
    WHERE k.letter_id = i.letter_id AND k.decided_at > i.decided_at AND k.outcome <> 'unknown'))"""
IN_DOUBT = f"""(l.state = 'replayed' AND l.id IN (
    SELECT i.letter_id FROM redrive.replay_items i
    WHERE {UNTOLD} OR i.decided_at IS NULL))"""  # noqa: S608 - a text of our own
UNDECIDED = f"({_WAITING} OR {IN_DOUBT})"


def first_undecided(columns: str, condition: str = "true") -> str:
    """Of a letter `l`: the first stored of those for which `condition` holds and that nobody has decided on,
    or whose replay is over without a known outcome. Each part by an index of its own.
    """
    return f"""
SELECT {columns} FROM redrive.dead_letters l WHERE l.id = (SELECT min(id) FROM (
    (SELECT l.id FROM redrive.dead_letters l WHERE {_WAITING} AND {condition} ORDER BY l.id LIMIT 1)
    UNION ALL
    (SELECT l.id FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
     WHERE {UNTOLD} AND l.state = 'replayed' AND {condition} ORDER BY i.letter_id LIMIT 1)) AS f)
"""  # noqa: S608 - texts of our own


@dataclass(frozen=True)
class LetterFilter:
    """Which letters; what is None is left open, and all that is given must hold.

    `queue` is a work queue or a dead-letter queue; `exception` the type as the letter shows it; `group` a
    whole fingerprint; `since` <= time of death < `until`, with a zone; `text` stands in the body as UTF-8,
    or as JSON escapes it. `state` is one of `STATES`. `undecided`: see `UNDECIDED`.
    """

    queue: str | None = None
    reason: str | None = None
    task: str | None = None
    state: str | None = None
    exception: str | None = None
    group: str | None = None
    job_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    undecided: bool = False

    @property
    def is_open(self) -> bool:
        """Whether every letter matches."""
        return self == LetterFilter()

    @property
    def words(self) -> str:
        """For people: `queue=payments reason=exception`, or `every letter`."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        said = [name if value is True else f"{name}={value}" for name, value in given.items() if value]
        return " ".join(said) or "every letter"


class Parameters:
    """Values of one statement, each with its place: `add` answers `$3`."""

    def __init__(self, *first: object) -> None:
        self.values: list[object] = list(first)

    def add(self, value: object) -> str:
        self.values.append(value)
        return f"${len(self.values)}"


def where(wanted: LetterFilter, parameters: Parameters) -> str:
    """The condition on `redrive.dead_letters l`, for any statement over it; `true` where all is open.

    Adds what it needs to `parameters`.
    """
    conditions = [
        choices[0] if len(choices) == 1 else f"({' OR '.join(choices)})"
        for choices in _conditions(wanted, parameters)
    ]
    if wanted.text is not None:
        conditions.append(holds_text(wanted.text, parameters))
    return " AND ".join(conditions) or "true"


def alternatives(wanted: LetterFilter, parameters: Parameters) -> list[str]:
    """The same but for `text`, as conditions of which a letter meets one at most: an index serves each, and
    none serves an OR in the order of ids.
    """
    return [" AND ".join(chosen) or "true" for chosen in product(*_conditions(wanted, parameters))]


def holds_text(text: str, parameters: Parameters) -> str:
    """The condition that the body of `l` holds `text`: a search through its bytes, which may be any."""
    # A command line's bytes that are no UTF-8 come as surrogates.
    as_utf8 = text.encode("utf-8", "surrogateescape")
    in_a_string = json.dumps(text)[1:-1].encode()
    in_json = "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text).encode()
    forms = dict.fromkeys((as_utf8, in_a_string, in_json))
    found = [f"position({parameters.add(form)}::bytea IN l.body) > 0" for form in forms]
    return f"({' OR '.join(found)})"


def _conditions(wanted: LetterFilter, parameters: Parameters) -> list[tuple[str, ...]]:
    """What must hold: of each, one or the other."""
    found: list[tuple[str, ...]] = []
    if wanted.queue is not None:
        name = safe_text(wanted.queue)
        place = parameters.add(name)
        choices = [
            f"l.queue = {place}",
            f"({FOREIGN_DLQ} AND l.dlq BETWEEN {place} AND {place} AND l.queue <> {place})",
        ]
        if name.endswith(_DLQ):
            work = parameters.add(name.removesuffix(_DLQ))
            choices.append(f"(l.queue = {work} AND l.dlq = {place})")
        found.append(tuple(choices))
    for column, value in (
        ("reason", wanted.reason),
        ("task", wanted.task),
        ("exception_type", wanted.exception),
        ("fingerprint", wanted.group),
        ("job_id", wanted.job_id),
    ):
        if value is not None:
            found.append((f"l.{column} = {parameters.add(safe_text(value))}",))
    if wanted.state is not None:
        # Spelled out, so that partial indexes are used.
        if wanted.state not in STATES:
            raise ValueError(f"no state {wanted.state!r}; there are {', '.join(STATES)}")
        found.append((f"l.state = '{wanted.state}'",))
    if wanted.since is not None:
        found.append((f"l.dead_at >= {parameters.add(wanted.since)}",))
    if wanted.until is not None:
        found.append((f"l.dead_at < {parameters.add(wanted.until)}",))
    if wanted.undecided:
        found.append((_WAITING, IN_DOUBT))
    return found
