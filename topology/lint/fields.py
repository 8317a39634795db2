"""Fields of JSON objects, taken with their types; what is wrong with them is collected as findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from topology.lint.finding import Finding, Severity

# Deeper than any argument table, and far below where Python's own recursion ends.
MAX_DEPTH = 20
ALL_VERSIONS = "3.10+"
OPERATOR_POLICY = "operator_policy"  # the runtime parameters that operator policies are exported as


class Complaints:
    """Collects what reading finds."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    def add(
        self,
        code: str,
        severity: Severity,
        vhost: str,
        entity: str,
        message: str,
        fix: str,
        versions: str = ALL_VERSIONS,
    ) -> None:
        self.found.append(Finding(code, severity, vhost, entity, (message,), message, fix, versions))


class Record:
    """One object of a category's list: a queue, a binding, a policy.

    A field of a wrong type is complained of and read as its default.
    """

    def __init__(
        self, category: str, number: int, value: Mapping[str, Any], vhost: str, complaints: Complaints
    ) -> None:
        self.value = value
        self.category = category
        self._number = number
        self.complaints = complaints
        self.has_vhost = "vhost" in value
        found = value.get("vhost", vhost)
        self.vhost = found if isinstance(found, str) else vhost
        if self.vhost is not found:
            self.wrong("vhost", "a string")

    @property
    def entity(self) -> str:
        """For findings: `queue 'orders'`, or where it stands when it has no name."""
        return label(self.category, self.value) or f"{self.category}[{self._number}]"

    def text(self, field: str) -> str | None:
        """A string that RabbitMQ insists on, or None after a complaint."""
        found = self.value.get(field)
        if isinstance(found, str):
            return found
        if field in self.value:
            self.wrong(field, "a string")
        else:
            self._missing(field)
        return None

    def flag(self, field: str, default: bool, *, needed: bool = False) -> bool:
        """`needed`: RabbitMQ 3.10 refuses an entity without it, 4.x takes the default."""
        found = self.value.get(field, default)
        if needed and field not in self.value:
            self.complaints.add(
                "FIELD-MISSING",
                "error",
                self.vhost,
                self.entity,
                f"has no {field}: RabbitMQ 3.10 refuses the file, RabbitMQ 4 takes {str(default).lower()}",
                f"write {field}: {str(default).lower()}",
                "<4.0",
            )
        if isinstance(found, bool):
            return found
        if found is not None:
            self.wrong(field, "true or false")
        return default

    def integer(self, field: str, default: int) -> int:
        found = self.value.get(field, default)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return int(found)
        self.wrong(field, "a number")
        return default

    def table(self, field: str) -> dict[str, object]:
        """An object of arguments. An empty list, as old exports have it, is an empty one."""
        found = self.value.get(field, {})
        if found == []:
            return {}
        if not isinstance(found, dict):
            self.wrong(field, "an object")
            return {}
        kept = {}
        for key, item in found.items():
            if item is None:
                self.wrong(f"{field}.{key}", "a value, not null")
            elif isinstance(item, dict | list) and depth_over(item, MAX_DEPTH):
                self.wrong(f"{field}.{key}", f"nested at most {MAX_DEPTH} deep")
            else:
                kept[key] = item
        return kept

    def wrong(self, field: str, expected: str) -> None:
        found: Any = self.value
        for part in field.split(".", 1):
            found = found.get(part) if isinstance(found, dict) else None
        self.complaints.add(
            "FIELD-TYPE",
            "error",
            self.vhost,
            self.entity,
            f"{field} is {shown(found)}, not {expected}: RabbitMQ refuses the file",
            f"make {field} {expected}",
        )

    def _missing(self, field: str) -> None:
        self.complaints.add(
            "FIELD-MISSING",
            "error",
            self.vhost,
            self.entity,
            f"has no {field}: RabbitMQ refuses the file",
            f"write its {field}",
        )

    def check_names(self, known: frozenset[str]) -> None:
        """Complains of an unknown field that looks like a known one; others are let be, as RabbitMQ does."""
        for field in self.value.keys() - known:
            if meant := likely(field, known.difference(self.value)):
                self.complaints.add(
                    "FIELD-UNKNOWN",
                    "warning",
                    self.vhost,
                    self.entity,
                    f"RabbitMQ ignores the field {field!r}; {meant!r} is probably meant",
                    f"rename it to {meant!r}",
                )


_SINGULAR = {
    "queues": "queue",
    "exchanges": "exchange",
    "policies": "policy",
    OPERATOR_POLICY: "operator policy",
    "parameters": "parameter",
    "users": "user",
    "vhosts": "vhost",
}


def label(category: str, value: Mapping[str, Any]) -> str:
    """What findings call an entity of the file; empty for one without a name."""
    if category == "bindings":
        kind = "exchange " if value.get("destination_type") == "exchange" else ""
        source, destination, key = (value.get(field) for field in ("source", "destination", "routing_key"))
        return f"binding {source!r} -> {kind}{destination!r} ({key!r})"
    name = value.get("name")
    return f"{_SINGULAR.get(category, category)} {name!r}" if isinstance(name, str) else ""


def records(tree: Mapping[str, Any], category: str, vhost: str, complaints: Complaints) -> Iterator[Record]:
    """The objects in one of the file's lists."""
    listed = tree.get(category, [])
    if not isinstance(listed, list):
        complaints.add(
            "FIELD-TYPE",
            "error",
            "",
            "file",
            f"{category} is {shown(listed)}, not a list: RabbitMQ refuses the file",
            f"make {category} a list",
        )
        return
    for number, value in enumerate(listed):
        if isinstance(value, dict):
            yield Record(category, number, value, vhost, complaints)
        else:
            complaints.add(
                "FIELD-TYPE",
                "error",
                "",
                f"{category}[{number}]",
                f"is {shown(value)}, not an object: RabbitMQ refuses the file",
                "write it as an object",
            )


@cache
def likely(field: str, known: frozenset[str]) -> str | None:
    """The known field that was probably meant."""
    close = get_close_matches(
        field.lower().replace("_", "-"), [name.replace("_", "-") for name in known], 1, 0.8
    )
    return next((name for name in known if close and name.replace("_", "-") == close[0]), None)


def depth_over(value: object, limit: int) -> bool:
    """Whether a JSON value is nested more than `limit` deep, told without recursion."""
    level: list[object] = [value]
    for _ in range(limit):
        level = [
            item
            for holder in level
            if isinstance(holder, dict | list)
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
        if not level:
            return False
    return True


def shown(value: object) -> str:
    """A value of a wrong type, for a message: short, and never what an object holds."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f"the string {_short(value)}"
    return f"the number {value!s:.40}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
