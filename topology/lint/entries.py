"""One entry of an export as one value. None after a complaint about what RabbitMQ insists on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from topology.lint.definitions import Binding, Exchange, Parameter, Policy, Queue, User, VirtualHost
from topology.lint.fields import OPERATOR_POLICY, Record

_DESTINATIONS: dict[str, Literal["queue", "exchange"]] = {"queue": "queue", "exchange": "exchange"}
_QUEUE = frozenset({"name", "vhost", "durable", "auto_delete", "exclusive", "arguments", "type"})
_EXCHANGE = frozenset({"name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"})
_BINDING = frozenset({"source", "vhost", "destination", "destination_type", "routing_key", "arguments"})
_POLICY = frozenset({"vhost", "name", "pattern", "apply-to", "definition", "priority"})


def vhost(record: Record) -> VirtualHost | None:
    name = record.text("name")
    return None if name is None else VirtualHost(name, default_queue_type(record.value))


def queue(record: Record) -> Queue | None:
    record.check_names(_QUEUE)
    if (name := record.text("name")) is None:
        return None
    return Queue(
        record.vhost,
        name,
        durable=record.flag("durable", True, needed=True),
        auto_delete=record.flag("auto_delete", False, needed=True),
        exclusive=record.flag("exclusive", False),
        arguments=record.table("arguments"),
        policy=in_force if isinstance(in_force := record.value.get("policy"), str) else None,
    )


def exchange(record: Record) -> Exchange | None:
    record.check_names(_EXCHANGE)
    name, kind = record.text("name"), record.text("type")
    if name is None or kind is None:
        return None
    return Exchange(
        record.vhost,
        name,
        kind,
        durable=record.flag("durable", True, needed=True),
        auto_delete=record.flag("auto_delete", False, needed=True),
        internal=record.flag("internal", False),
        arguments=record.table("arguments"),
    )


def binding(record: Record) -> Binding | None:
    record.check_names(_BINDING)
    source, destination = record.text("source"), record.text("destination")
    kind, key = record.text("destination_type"), record.text("routing_key")
    if source is None or destination is None or kind is None or key is None:
        return None
    arguments = record.table("arguments")
    destination_type = _DESTINATIONS.get(kind)
    if destination_type is None:
        record.wrong("destination_type", "'queue' or 'exchange'")
        return None
    return Binding(record.vhost, source, destination, destination_type, key, arguments)


def policy(record: Record) -> Policy | None:
    record.check_names(_POLICY)
    name, pattern = record.text("name"), record.text("pattern")
    if name is None or pattern is None:
        return None
    apply_to = record.text("apply-to") if "apply-to" in record.value else "all"
    definition = record.table("definition")
    if not definition:
        record.complaints.add(
            "FIELD-MISSING",
            "error",
            record.vhost,
            record.entity,
            "its definition is empty: RabbitMQ refuses the file",
            "write what the policy sets, or leave it out",
        )
    return Policy(
        record.vhost,
        name,
        pattern,
        definition,
        apply_to=apply_to or "all",
        priority=record.integer("priority", 0),
        operator=record.category == OPERATOR_POLICY,
    )


def operator_policy(record: Record) -> Policy | None:
    value = record.value.get("value")
    if not isinstance(value, dict):
        record.wrong("value", "an object")
        return None
    named = {**value, "name": record.value.get("name"), "vhost": record.vhost}
    return policy(Record(OPERATOR_POLICY, 0, named, record.vhost, record.complaints))


def parameter(record: Record) -> Parameter | None:
    component, name = record.text("component"), record.text("name")
    if component is None or name is None:
        return None
    return Parameter(record.vhost, component, name, record.value.get("value"))


def user(record: Record) -> User | None:
    name, tags = record.text("name"), record.value.get("tags")
    if name is None:
        return None
    if isinstance(tags, str):  # as up to 3.8
        tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if not isinstance(tags, list):
        # What a user holds is never quoted.
        record.complaints.add(
            "FIELD-MISSING" if tags is None else "FIELD-TYPE",
            "error",
            "",
            record.entity,
            f"{'has no tags' if tags is None else 'tags are no list'}: RabbitMQ refuses the file",
            "write tags as a list, which may be empty",
        )
        tags = []
    plaintext = isinstance(record.value.get("password"), str)
    return User(name, tuple(tag for tag in tags if isinstance(tag, str)), plaintext)


def default_queue_type(value: Mapping[str, Any]) -> str | None:
    metadata = value.get("metadata")
    for holder in (metadata if isinstance(metadata, dict) else {}, value):
        found = holder.get("default_queue_type")
        if isinstance(found, str) and found != "undefined":  # so 3.10 writes that there is none
            return found
    return None
