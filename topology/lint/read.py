"""Definitions from JSON: an export of a whole broker or of one virtual host, of RabbitMQ 3.6 to 4.3.

Which fields RabbitMQ insists on was tried by importing on 3.10.8 and 4.3.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from topology.lint import entries
from topology.lint.definitions import Definitions, VirtualHost
from topology.lint.document import CATEGORIES, parse
from topology.lint.fields import ALL_VERSIONS, OPERATOR_POLICY, Complaints, Record, likely, records
from topology.lint.finding import Finding
from topology.lint.places import Places

T = TypeVar("T")

DEFAULT_VHOST = "/"
_WITH_VHOST = ("queues", "exchanges", "bindings", "policies", "parameters")
_TOP = frozenset(CATEGORIES)


def read(content: bytes, source: str) -> Definitions:
    """Definitions from a file's bytes.

    Raises:
        NotDefinitionsError: they are none; one line says why.
    """
    return read_with_places(content, source)[0]


def read_with_places(content: bytes, source: str) -> tuple[Definitions, Places]:
    """The same, and where in the file each entity stands."""
    document = parse(content, source)
    only = _only_vhost(document.tree)
    return (
        from_tree(document.tree, source, problems=document.problems),
        Places(document.text, only.name if only else DEFAULT_VHOST),
    )


def from_tree(
    tree: Mapping[str, Any],
    source: str,
    *,
    origin: Literal["file", "broker"] = "file",
    problems: Iterable[Finding] = (),
) -> Definitions:
    """Definitions from the JSON object that an export is. What is wrong in it becomes `problems`."""
    complaints = Complaints()
    complaints.found += problems
    only = _only_vhost(tree)
    vhost = only.name if only else DEFAULT_VHOST
    lists = {category: list(records(tree, category, vhost, complaints)) for category in CATEGORIES}
    _check_top(tree, complaints)
    if not only:
        _check_vhost_fields(lists, complaints)
    parameters, operator_policies = [], []
    for record in lists["parameters"]:
        if record.value.get("component") == OPERATOR_POLICY:
            operator_policies.append(record)
        else:
            parameters.append(record)
    policies = [policy for record in lists["policies"] if (policy := entries.policy(record))]
    policies += [policy for record in operator_policies if (policy := entries.operator_policy(record))]
    return Definitions(
        source=source,
        origin=origin,
        rabbitmq_version=_version(tree),
        vhosts=(only,) if only else _made(lists["vhosts"], entries.vhost),
        queues=_once(_made(lists["queues"], entries.queue), complaints, "queue"),
        exchanges=_once(_made(lists["exchanges"], entries.exchange), complaints, "exchange"),
        bindings=_made(lists["bindings"], entries.binding),
        policies=_once(policies, complaints, "policy", last=True),
        parameters=_made(parameters, entries.parameter),
        users=_made(lists["users"], entries.user),
        problems=tuple(complaints.found),
    )


def _only_vhost(tree: Mapping[str, Any]) -> VirtualHost | None:
    """The virtual host of an export of one: its entities have no `vhost`, and the file no users."""
    if tree.get("rabbitmq_definition_format") != "single_virtual_host":
        if any(category in tree for category in ("vhosts", "users", "permissions", "topic_permissions")):
            return None
        entities = [
            value
            for category in _WITH_VHOST
            if isinstance(listed := tree.get(category), list)
            for value in listed
            if isinstance(value, dict)
        ]
        if any("vhost" in value for value in entities):
            return None
    name = tree.get("original_vhost_name")
    return VirtualHost(name if isinstance(name, str) else DEFAULT_VHOST, entries.default_queue_type(tree))


def _version(tree: Mapping[str, Any]) -> str | None:
    for field in ("rabbitmq_version", "product_version", "rabbit_version"):
        if isinstance(found := tree.get(field), str) and found[:1].isdigit():
            return found
    return None


def _check_top(tree: Mapping[str, Any], complaints: Complaints) -> None:
    for field in tree.keys() - _TOP:
        if (meant := likely(field, _TOP.difference(tree))) and isinstance(tree[field], list):
            complaints.add(
                "FIELD-UNKNOWN",
                "warning",
                "",
                "file",
                f"RabbitMQ ignores the field {field[:80]!r}; {meant!r} is probably meant",
                f"rename it to {meant!r}",
            )


def _check_vhost_fields(lists: Mapping[str, list[Record]], complaints: Complaints) -> None:
    counts = {
        category: count
        for category in _WITH_VHOST
        if (count := sum(not record.has_vhost for record in lists[category]))
    }
    if not counts:
        return
    listed = ", ".join(f"{count} {category}" for category, count in counts.items())
    # 3.10.8 takes bindings without one, and refuses everything else.
    versions = "3.13+" if counts.keys() == {"bindings"} else ALL_VERSIONS
    complaints.add(
        "NO-VHOST-FIELD",
        "error",
        "",
        "file",
        f"{listed} without a vhost: RabbitMQ refuses the file. Linted as if in {DEFAULT_VHOST!r}",
        "write the vhost of each, or leave out vhosts and users and import the file into one virtual host",
        versions,
    )


def _made(found: Iterable[Record], make: Callable[[Record], T | None]) -> tuple[T, ...]:
    return tuple(made for record in found if (made := make(record)) is not None)


def _once(made: Iterable[T], complaints: Complaints, kind: str, *, last: bool = False) -> tuple[T, ...]:
    """Each name once. The broker keeps the first queue or exchange of a name, and the last policy."""
    kept: dict[tuple[object, ...], T] = {}
    counts: Counter[tuple[object, ...]] = Counter()
    for entity in made:
        key = (entity.vhost, entity.name, getattr(entity, "operator", False))  # type: ignore[attr-defined]
        if last or key not in kept:
            kept[key] = entity
        counts[key] += 1
    for (vhost, name, operator), count in counts.items():
        if count > 1:
            complaints.add(
                "DUPLICATE-NAME",
                "warning",
                str(vhost),
                f"{'operator ' if operator else ''}{kind} {name!r}",
                f"stands {count} times in the file; RabbitMQ keeps the {'last' if last else 'first'}",
                "keep one of them",
            )
    return tuple(kept.values())
