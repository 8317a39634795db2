"""What is shown of dead letters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from api.openapi.job_models import Attempt, State
from api.openapi.replays import ItemOutcome, ItemState
from api.openapi.schema import Count, Fingerprint, LeftOut, NextCursor, Seconds, Sha256, Shown, Time, Uuid

LetterId = Annotated[int, Field(ge=1)]
LetterState = Literal["open", "replaying", "replayed", "discarded", "quarantined"]
Reason = Annotated[
    str,
    Field(
        description="exception, exhausted, rejected, soft_timeout, hard_timeout, worker_lost, memory, "
        "undecodable, malformed, unknown_task, expired, revoked, delivery_limit, maxlen, unroutable, "
        "foreign or unknown"
    ),
]
# See topology.wire_readable.
Headers = Annotated[
    dict[str, Any],
    Field(
        description="as they came; what JSON has no form for as an object whose name begins with `$`, "
        'such as `{"$bytes": base64}` or `{"$ts": time}`'
    ),
]


class Death(Shown):
    """An entry of the broker's death history: evidence, as anyone may send it."""

    queue: str
    reason: str
    exchange: str
    routing_keys: list[str]
    count: int
    time: Time | None
    words: str = Field(description="the same for people")


class LetterReplay(Shown):
    """A replay of the letter, and what became of it."""

    token: str = Field(description="the header `redrive-replay` of the message that was sent")
    replay_id: Uuid
    target: str
    state: ItemState
    outcome: ItemOutcome | None
    detail: str | None
    next_letter_id: int | None
    requested_by: str
    created_at: Time
    published_at: Time | None
    decided_at: Time | None


class SentReplay(LetterReplay):
    """The same, with the edit that was sent; null: the letter as it came."""

    edit: int | None


class Letter(Shown):
    """A dead letter as lists show it. Headers of more than 8 KiB are left out: `{"$left_out": bytes}`."""

    id: LetterId
    queue: str = Field(description="the work queue in which it died")
    dead_letter_queue: str
    reason: Reason
    detail: str | None = Field(description="what is wrong with the message, where the reason is its form")
    state: LetterState
    message_id: str | None
    job_id: str | None
    task: str | None
    exception_type: str | None
    group: Fingerprint
    body_sha256: Sha256
    body_size: Count
    possible_duplicate: bool
    duplicate_of: int | None = Field(description="the first letter of the same death of the same job")
    dead_at: Time | None
    stored_at: Time
    deaths: list[Death] = Field(description="the latest first")
    headers: Headers
    attempts: list[Attempt] = Field(description="of its job, the oldest first")
    replays: list[LetterReplay]


class LetterBody(Shown):
    """`json`, `text` or `hex`, of 256 KiB at most. `kind`: of what is neither JSON nor text."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [name]} for name in ("json", "text", "hex")]}
    )

    json_: Any | LeftOut = Field(None, alias="json")
    text: str | LeftOut = None
    hex: str | LeftOut = None
    truncated: Literal[True] | LeftOut = None
    kind: str | LeftOut = None


class LetterEdit(Shown):
    """What a replay sends in place of the letter."""

    id: int
    message_id: str
    body_sha256: Sha256
    body_size: Count
    headers: Headers
    properties: dict[str, Any]
    body: LetterBody


class GroupOfLetter(Shown):
    fingerprint: Fingerprint
    queue: str
    task: str | None
    reason: Reason
    exception_type: str | None
    top_frame: str | None = Field(description="of our own code")
    letters: Count
    first_seen: Time
    last_seen: Time


class JobOfLetter(Shown):
    state: State
    generation: int
    attempt: int
    reason: str | None


class LetterStep(Shown):
    """What was done with a letter. Beside these fields what belongs to the action."""

    model_config = ConfigDict(extra="allow")

    action: Literal["discard", "restore", "edit", "withdraw", "import"]
    by: str
    at: Time
    why: str | LeftOut = None


class LetterDossier(Letter):
    """All that is known of one letter."""

    replays: list[SentReplay]  # type: ignore[assignment]  # each with one field more
    edit: LetterEdit | None = Field(description="the edit in force")
    vhost: str | None = Field(description="of its dead-letter queue; null: it was imported")
    target: str | None = Field(description="where a replay sends it; null: its history does not tell")
    exchange: str
    routing_key: str
    properties: dict[str, Any] = Field(
        description="without headers; what the message does not have is left out"
    )
    header_types: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = Field(
        description="name and AMQP type of each header, in their order"
    )
    body: LetterBody
    group_details: GroupOfLetter
    job: JobOfLetter | None
    replay_of: int | None = Field(description="the letter whose replay died as this one")
    imported_from: int | None = Field(description="its id in the database that it was exported from")
    redacted: list[str] = Field(description="paths of values that were taken out")
    history: list[LetterStep]


class LetterList(Shown):
    letters: list[Letter]
    next_cursor: NextCursor


class GroupFigure(Shown):
    group: Fingerprint
    queue: str
    task: str | None
    reason: Reason
    exception_type: str | None
    last_seen: Time
    undecided: Count


class HourFigure(Shown):
    hour: Time
    letters: Count


class OldestLetter(Shown):
    id: LetterId
    dead_at: Time | None
    age_s: Seconds | None


class NewestLetter(Shown):
    id: LetterId
    dead_at: Time | None
    stored_at: Time


class LetterStats(Shown):
    """Copies of a letter are not counted."""

    letters: Count
    states: dict[LetterState, Count]
    queues: dict[str, dict[LetterState, Count]]
    reasons: dict[str, dict[LetterState, Count]]
    groups: list[GroupFigure] = Field(description="the largest undecided ones")
    hours: list[HourFigure] = Field(description="by time of storing; the last one is this hour")
    oldest_undecided: OldestLetter | None
    newest: NewestLetter | None


class EditDryRun(Shown):
    """What an edit would change: a JSON Patch (RFC 6902), and by what it was checked."""

    letter: LetterId
    changes: list[dict[str, Any]]
    checked: str


class DiscardedLetters(Shown):
    discarded: Count


class RestoredLetters(Shown):
    restored: Count


class FoundLetters(Shown):
    """What the filter finds: `letters` is what to `expect`."""

    letters: Count
    left_out: dict[str, Count] = Field(description="those that do not allow it, by why")
