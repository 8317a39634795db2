"""A letter changed by hand, checked before it is kept. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from topology.delivery import Refusal, check_delivery, delivery_of
from topology.errors import UnknownJobTypeError
from topology.json_patch import Patch, diff
from topology.letter_document import Document, document_of, with_message_id, with_value
from topology.messages import Message
from topology.payloads import validated
from topology.redaction import FieldPath, unfilled
from topology.spec import Topology
from topology.wire import split


class EditRefusedError(ValueError):
    """What is wrong with an edit: pairs of a field and what is said of it."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {message}" for field, message in faults))
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Edit:
    """What a replay is to send. `changes` leads from what was there to it; `checked` tells by what."""

    message_id: str
    message: Message
    changes: Patch
    checked: str


def edit(
    message: Message, change: Callable[[Any], Any], *, topology: Topology, validate: bool,
    redacted: Sequence[FieldPath] = (),
) -> Edit:  # fmt: skip
    """The message as `change` makes it: from a document (`topology.letter_document`) to another.

    Args:
        validate: refuse what a worker would refuse or the job's model does not take, and an edit that does
            not fill in what was redacted.

    Raises:
        NoDocumentError: the body cannot be read as JSON, or the new document is none for it.
        PatchError: raised by `change`.
        EditRefusedError: nothing is changed, or it does not pass.
    """
    document = document_of(message.properties, message.body)
    try:
        value = change(document.value)
        changes = diff(document.value, value)
    except RecursionError:
        raise EditRefusedError([("patch", "the letter, or what it becomes, is nested too deeply")]) from None
    if not changes:
        raise EditRefusedError([("patch", "it changes nothing")])
    message_id = str(uuid4())
    made = with_message_id(with_value(document, value), message_id)
    if validate and (open_ := unfilled(made, redacted)):
        raise EditRefusedError([(path, "was redacted and is to be filled in") for path in open_])
    checked = _check(document, made, topology) if validate else "not validated"
    return Edit(message_id, made, changes, checked)


def _check(document: Document, message: Message, topology: Topology) -> str:
    """By what it was checked."""
    properties = split(message.properties)
    if document.protocol is None and properties.get_header("task") is None:
        return "no model for it"
    found = check_delivery(delivery_of(properties, message.body))
    if isinstance(found, Refusal):
        raise EditRefusedError([("body", f"a worker would refuse it: {found.detail}")])
    try:
        job = topology.job(found.task)
    except UnknownJobTypeError:
        return f"no model for {found.task}"
    if found.args:
        raise EditRefusedError([("args", "jobs of the catalogue take keywords only")])
    try:
        validated(job, document_of(message.properties, message.body).value["kwargs"])
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[:20]
        faults = [(".".join(["kwargs", *map(str, one["loc"])]), str(one["msg"])) for one in wrong]
        raise EditRefusedError(faults) from None
    except ValueError as error:
        raise EditRefusedError([("kwargs", str(error))]) from None
    return f"the model of {job.name}"
