"""The text of a definitions file as a JSON object, or one line that says why it is none."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, NoReturn

from topology.errors import TopologyError
from topology.lint.finding import Finding

# Linting 150,000 faulty queues, a file of this size, took 1.3 GB and 35 s.
MAX_BYTES = 32 * 1024 * 1024
# What a definitions file is made of; one of them as a list makes a JSON object one.
CATEGORIES = (
    "vhosts",
    "users",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "queues",
    "exchanges",
    "bindings",
)
# The longest first: UTF-32's begins as UTF-16's does.
_BYTE_ORDER_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_STRING_OR_COMMA = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|,(?=[ \t\r\n]*[}\]])', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class NotDefinitionsError(TopologyError):
    """Nothing that could be linted; one line says why and what to do."""


@dataclass(frozen=True)
class Document:
    """One JSON object. `text` is what was parsed: its offsets are those of the file's characters."""

    tree: dict[str, Any]
    text: str
    problems: tuple[Finding, ...]


def parse(content: bytes, source: str) -> Document:
    """Read a definitions file.

    What RabbitMQ 3.10 accepts and RabbitMQ 4 refuses (a comma before a closing bracket, bytes that are
    not UTF-8) is a finding, and reading goes on.

    Raises:
        NotDefinitionsError: too large, empty, not JSON, or the JSON of something else.
    """
    if len(content) > MAX_BYTES:
        raise NotDefinitionsError(too_large(source))
    parser = _Parser(source)
    text = parser.decoded(content)
    tree = parser.parsed(text)
    if not isinstance(tree, dict):
        parser.fail(f"a JSON {_kind(tree)}, where definitions are an object{_listing_hint(tree)}")
    if not any(isinstance(tree.get(category), list) for category in CATEGORIES):
        wrong = [category for category in CATEGORIES if category in tree]
        found = ", ".join(repr(key)[:40] for key in list(tree)[:5]) or "nothing"
        said = (
            f"{wrong[0]} is a JSON {_kind(tree[wrong[0]])}, not a list"
            if wrong
            else f"none of {', '.join(CATEGORIES)} in it, but {found}"
        )
        parser.fail(f"no RabbitMQ definitions: {said}. Export some with: rabbitmqctl export_definitions FILE")
    return Document(tree, parser.text, tuple(parser.problems))


def too_large(source: str) -> str:
    """The message for more than `MAX_BYTES`."""
    return (
        f"{source}: larger than {MAX_BYTES // 1024**2} MiB, the most that is read (about 100,000 queues). "
        "Export one virtual host at a time: GET /api/definitions/VHOST"
    )


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Finding] = []
        self.text = ""
        self._repeated: Counter[str] = Counter()

    def fail(self, what: str) -> NoReturn:
        raise NotDefinitionsError(f"{self.source}: {what}")

    def decoded(self, content: bytes) -> str:
        """Text without a byte order mark, which both RabbitMQ 3.10 and 4.3 skip."""
        for mark, name in _BYTE_ORDER_MARKS.items():
            if content.startswith(mark):
                self.fail(f"{name} text; RabbitMQ reads UTF-8. Convert it: iconv -f {name} -t UTF-8")
        if not content.strip():
            self.fail("empty, where a JSON object is expected")
        if content[:1] == b"\0" or content[1:2] == b"\0":
            self.fail("starts with a NUL byte: not JSON in UTF-8")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self._refused(f"line {line}: byte 0x{content[error.start]:02x} is not UTF-8", "save it as UTF-8")
            return content.decode("utf-8-sig", errors="replace")

    def parsed(self, text: str) -> Any:
        self.text = text
        try:
            tree = self._loads(text)
        except RecursionError:
            self.fail("nested too deeply to be read; no definitions are")
        except json.JSONDecodeError as error:
            # Blanks for commas: every offset stays.
            self.text = _STRING_OR_COMMA.sub(lambda found: found[0] if found[0] != "," else " ", text)
            try:
                tree = self._loads(self.text)
            except (ValueError, RecursionError):
                self.fail(_told(text, error))
            comma = next(at for at, (a, b) in enumerate(zip(text, self.text, strict=True)) if a != b)
            self._refused(f"{_at(text, comma)}: a comma before a closing bracket", "remove the comma")
        except ValueError as error:  # a number that Python refuses to read, or ours below
            self.fail(str(error).partition(";")[0])
        for key, count in self._repeated.items():
            self._repeated_key(key, count)
        if "\\u" in text and _SURROGATE.search(json.dumps(tree, ensure_ascii=False)):
            tree = _without_surrogates(tree)
            self._refused("half a surrogate pair (\\ud800 to \\udfff)", "write the whole character")
        return tree

    def _loads(self, text: str) -> Any:
        self._repeated.clear()
        return json.loads(
            text, object_pairs_hook=self._object, parse_constant=_refuse_constant, parse_float=_finite
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            self._repeated.update(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            made = dict(reversed(pairs))  # the first counts, as for RabbitMQ 4
        return made

    def _refused(self, what: str, fix: str) -> None:
        self.problems.append(
            Finding(
                "JSON-INVALID",
                "error",
                "",
                "file",
                (what,),
                f"not quite JSON: {what}; RabbitMQ 4 refuses the whole file",
                fix,
                "3.13+",
            )
        )

    def _repeated_key(self, key: str, count: int) -> None:
        self.problems.append(
            Finding(
                "JSON-DUPLICATE-KEY",
                "warning",
                "",
                "file",
                (f"key {key!r} stands twice in one object",),
                f"key {key!r} stands twice in one object"
                + (f", in {count} objects" if count > 1 else "")
                + ": RabbitMQ 4 takes the first value, 3.10 the last. Linted is the first",
                "keep one of them",
                "3.10+",
            )
        )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: the number {name}")


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError(f"a number out of range: {digits[:40]}")
    return value


def _told(text: str, error: json.JSONDecodeError) -> str:
    if error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip()):
        return f"{_at(text, len(text))}: ends in the middle; the file is cut off"
    at = _at(text, error.pos)
    reason = error.msg[0].lower() + error.msg[1:]
    seen = text[error.pos : error.pos + 20].splitlines()[0]
    return f"not JSON: {at}: {reason}, found {seen!r}"


def _at(text: str, offset: int) -> str:
    line = text.count("\n", 0, offset) + 1
    return f"line {line} column {offset - text.rfind(chr(10), 0, offset)}"


def _kind(value: object) -> str:
    names = {list: "list", dict: "object", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def _listing_hint(tree: object) -> str:
    if isinstance(tree, list) and tree and isinstance(tree[0], dict) and "vhost" in tree[0]:
        return "; that looks like one listing of the management API. Take GET /api/definitions"
    return ""


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value
