"""A letter as one line of JSON: all that another database needs to have it, byte for byte."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from storage.errors import StorageError
from storage.letter_actions import Action

FORMAT = 1
# Bytes. A message has 512 MiB at most (https://www.rabbitmq.com/docs/configure, max_message_size).
MAX_LINE = 1 << 30
# Of a body that is spelled at a time: whole groups of base64.
_CHUNK = 3 * 256 * 1024
# A row of a btree index has less than 2,704.
_MAX_INDEXED = 2_600


class BadLineError(StorageError):
    """A line is no letter, or not a whole one; the text names the field, not its value."""


def pieces(head: Mapping[str, Any], raw: Raw, edit: Edit | None) -> Iterator[bytes]:
    """The line, a piece at a time: `head` is all that is beside the bytes."""
    yield json.dumps({"format": FORMAT} | dict(head), allow_nan=False)[:-1].encode()
    yield b', "raw": '
    yield from raw.pieces()
    if edit is None:
        yield b', "edit": null}\n'
        return
    yield f', "edit": {{"id": {edit.id}, "message_id": {json.dumps(edit.message_id)}, "raw": '.encode()
    yield from edit.raw.pieces()
    yield b"}}\n"


def parse(line: bytes) -> LetterLine:
    """Undoes `pieces`.

    Raises:
        BadLineError: it is none, or something in it does not fit together.
    """
    try:
        try:
            return LetterLine.model_validate_json(line)
        except ValidationError as error:
            # pydantic's parser has a limit of 200 levels; a patch on record may be deeper.
            if "recursion limit" not in error.errors()[0]["msg"]:
                raise
        return LetterLine.model_validate(json.loads(line), strict=False)
    except (ValueError, RecursionError) as error:
        if not isinstance(error, ValidationError):
            raise BadLineError("is nested too deeply") from None
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadLineError(f"{where}: {first['msg']}" if where else first["msg"]) from None


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("holds a NUL")
    return text


def _indexable(text: str) -> str:
    if len(text.encode()) > _MAX_INDEXED:
        raise ValueError(f"has more than {_MAX_INDEXED} bytes")
    return text


def _base64(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("is no base64")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("is no base64") from error


def _hex(value: object) -> object:
    if not isinstance(value, str) or len(value) != 64:
        raise ValueError("is no SHA-256")
    try:
        return bytes.fromhex(value)
    except ValueError as error:
        raise ValueError("is no SHA-256") from error


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is out of range") from error


Bytes = Annotated[bytes, BeforeValidator(_base64)]
Sha256 = Annotated[bytes, BeforeValidator(_hex)]
Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[Text, AfterValidator(_indexable)]
Time = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Id = Annotated[int, Field(ge=1, lt=2**63)]
Small = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Raw(_Part):
    """Properties and body as the queue delivered them, or as an edit made them."""

    properties: Bytes
    properties_sha256: Sha256
    body: Bytes
    body_sha256: Sha256

    @model_validator(mode="after")
    def _are_whole(self) -> Self:
        for name in ("properties", "body"):
            if hashlib.sha256(getattr(self, name)).digest() != getattr(self, f"{name}_sha256"):
                raise ValueError(f"{name}_sha256 is not that of {name}")
        return self

    @classmethod
    def of(cls, properties: bytes, body: bytes, body_sha256: bytes | None = None) -> Self:
        """Unchecked: `body_sha256` is what was on record."""
        return cls.model_construct(
            properties=properties,
            properties_sha256=hashlib.sha256(properties).digest(),
            body=body,
            body_sha256=hashlib.sha256(body).digest() if body_sha256 is None else body_sha256,
        )

    def pieces(self) -> Iterator[bytes]:
        yield b'{"properties": "' + base64.b64encode(self.properties)
        yield f'", "properties_sha256": "{self.properties_sha256.hex()}"'.encode()
        yield f', "body_sha256": "{self.body_sha256.hex()}", "body": "'.encode()
        body = memoryview(self.body)
        for at in range(0, len(body), _CHUNK):
            yield base64.b64encode(body[at : at + _CHUNK])
        yield b'"}'


class Edit(_Part):
    """What a replay sends in place of the letter."""

    id: Id
    message_id: Text
    raw: Raw


class Origin(_Part):
    """A letter in the database that drained it: which one it is, wherever it is brought."""

    id: Id
    stored_at: Time
    identity: Sha256

    @property
    def key(self) -> tuple[bytes, int, datetime]:
        return self.identity, self.id, self.stored_at

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "stored_at": self.stored_at.isoformat(), "identity": self.identity.hex()}


class GroupLine(_Part):
    queue: Text
    task: Text | None
    reason: Text
    exception_type: Text | None
    top_frame: Text | None
    rule: Small


class Step(_Part):
    """What was done with it. Beside these fields whatever is on record."""

    model_config = ConfigDict(extra="allow")

    action: Action
    by: Text
    at: Time


class ReplayLine(_Part):
    """A replay of it. Beside these fields whatever is on record."""

    model_config = ConfigDict(extra="allow")

    token: Name
    target: Text
    state: Text
    outcome: Text | None

    @property
    def is_doubtful(self) -> bool:
        """Whether it was sent, or may have been, and nobody knows what came of it."""
        return self.outcome == "unknown" or (
            self.outcome is None and self.state in ("publishing", "published")
        )


class LetterLine(_Part):
    """One letter. What of a line is not here is for readers alone."""

    format: Literal[1]
    id: Id
    origin: Origin
    queue: Name
    dead_letter_queue: Name
    target: Text | None
    reason: Name
    detail: Text | None
    state: Literal["open", "replaying", "replayed", "discarded", "quarantined"]
    raw: Raw
    exchange: Text
    routing_key: Text
    body_sha256: Sha256
    has_identity: bool
    possible_duplicate: bool
    copy_of: Origin | None
    message_id: Text | None
    job_id: Name | None
    generation: Small | None
    attempt: Small | None
    task: Name | None
    exception_type: Name | None
    group: Name
    group_details: GroupLine
    replay_token: Name | None
    dead_at: Time | None
    stored_at: Time
    redacted: list[Text]
    edit: Edit | None
    history: list[Step]
    replays: list[ReplayLine]
    attempts: list[dict[str, Any]]
    job: dict[str, Any] | None

    @model_validator(mode="after")
    def _is_of_its_bytes(self) -> Self:
        if self.body_sha256 != self.raw.body_sha256:
            raise ValueError("body_sha256 is not that of the bytes")
        return self

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        edit = len(self.edit.raw.body) + len(self.edit.raw.properties) if self.edit else 0
        return len(self.raw.body) + len(self.raw.properties) + edit

    @property
    def doubtful(self) -> list[ReplayLine]:
        """Its replays of which nobody knows what came of them."""
        return [replay for replay in self.replays if replay.is_doubtful]
