"""The part of a message that people read and change: a task's arguments, or a stranger's JSON body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from topology.delivery import TaskMessage, check_delivery, decompressed_body, delivery_of
from topology.delivery_fields import Refused
from topology.exact_json import dump, load
from topology.messages import REPR_CHARACTERS, Message
from topology.wire import MalformedProperties, Properties, split

REPRESENTED = {"args": "argsrepr", "kwargs": "kwargsrepr"}
COMPRESSION = "compression"


class NoDocumentError(ValueError):
    """A message without a readable JSON body, or a document that its message cannot have."""


@dataclass(frozen=True)
class Document:
    """`value` is what may be changed: `{"args": […], "kwargs": {…}}` of a task message, else the body.

    `repeated`: an object of the body names a key twice; the last one of such is here.
    """

    properties: Properties
    protocol: Literal[1, 2] | None
    task: str | None
    body: Any
    value: Any
    repeated: bool


def document_of(properties: bytes, body: bytes) -> Document:
    """What a message says.

    Raises:
        NoDocumentError: its properties cannot be taken apart, or its body is no JSON in UTF-8.
    """
    try:
        parts = split(properties)
        delivery = delivery_of(parts, body)
        value, repeated = load(decompressed_body(delivery))
    except (MalformedProperties, Refused, ValueError) as error:
        raise NoDocumentError(f"its body cannot be read as JSON: {error}") from None
    checked = check_delivery(delivery)
    if not isinstance(checked, TaskMessage):
        return Document(parts, None, checked.task, value, value, repeated)
    if checked.protocol == 2:
        args, kwargs = value[0], value[1]
    else:
        args, kwargs = value.get("args") or [], value.get("kwargs") or {}
    return Document(parts, checked.protocol, checked.task, value, {"args": args, "kwargs": kwargs}, repeated)


def with_value(document: Document, value: Any) -> Message:
    """The message with another value; all but the body, what describes it and its size stays as it is.

    Raises:
        NoDocumentError: a task message has `args`, a list, and `kwargs`, an object, and nothing else.
    """
    properties, body = document.properties, value
    if document.protocol is not None:
        args, kwargs = _arguments(value)
        if document.protocol == 2:
            body = [args, kwargs, *document.body[2:]]
        else:
            body = document.body | {"args": args, "kwargs": kwargs}
        if args != document.value["args"]:
            properties = _represented(properties, "args", ascii(tuple(args)))
        if kwargs != document.value["kwargs"]:
            properties = _represented(properties, "kwargs", ascii(kwargs))
    try:
        return Message(properties.without_headers((COMPRESSION,)).encode(), dump(body))
    except ValueError as error:
        raise NoDocumentError(str(error)) from None


def with_message_id(message: Message, message_id: str) -> Message:
    """The same under another message id; the id of its job is in a header, and stays."""
    properties = split(message.properties)._replace(message_id=message_id.encode())
    return Message(properties.encode(), message.body)


def _arguments(value: Any) -> tuple[list[Any], dict[str, Any]]:
    if not isinstance(value, dict) or value.keys() != {"args", "kwargs"}:
        raise NoDocumentError("a task message has args and kwargs, and nothing else")
    args, kwargs = value["args"], value["kwargs"]
    if not isinstance(args, list):
        raise NoDocumentError("args must be a list")
    if not isinstance(kwargs, dict):
        raise NoDocumentError("kwargs must be an object")
    return args, kwargs


def _represented(properties: Properties, part: str, text: str) -> Properties:
    header = REPRESENTED[part]
    if properties.get_header(header) is None:
        return properties
    return properties.with_header(header, text[:REPR_CHARACTERS])
