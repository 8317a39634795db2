"""Where in a definitions file an entity stands: lines and columns, for messages and for SARIF."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any

from topology.lint.document import CATEGORIES
from topology.lint.fields import OPERATOR_POLICY, label
from topology.lint.finding import Finding

_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class Place:
    """Both count from 1; the column counts code points."""

    line: int
    column: int


class Places:
    """Looked up by virtual host and entity; the text is gone through when first asked."""

    def __init__(self, text: str, vhost: str) -> None:
        """`text`: a JSON object. `vhost`: of entities that do not say theirs."""
        self._text = text
        self._vhost = vhost
        self._known: dict[tuple[str, str], int] | None = None
        self._lines: list[int] = []

    def of(self, finding: Finding) -> Place | None:
        """Where the finding's entity begins; None for what is no entity of the file."""
        if self._known is None:
            self._lines = [0, *(found.end() for found in re.finditer("\n", self._text))]
            self._known = {}
            for category, value, offset in _entities(self._text):
                of_a_vhost = category not in ("users", "vhosts")
                vhost = str(value.get("vhost", self._vhost)) if of_a_vhost else ""
                self._known.setdefault((vhost, _label(category, value)), offset)
        # Users and virtual hosts are in none.
        at = self._known.get((finding.vhost, finding.entity), self._known.get(("", finding.entity)))
        if at is None:
            return None
        line = bisect_right(self._lines, at)
        return Place(line, at - self._lines[line - 1] + 1)


def _label(category: str, value: dict[str, Any]) -> str:
    operator = category == "parameters" and value.get("component") == OPERATOR_POLICY
    return label(OPERATOR_POLICY if operator else category, value)


def _entities(text: str) -> Iterator[tuple[str, dict[str, Any], int]]:
    decoder = JSONDecoder()
    at = _past_blanks(text, 0) + 1
    while (at := _past_blanks(text, at)) < len(text) and text[at] != "}":
        if text[at] == ",":
            at += 1
            continue
        key, at = decoder.raw_decode(text, at)
        at = _past_blanks(text, _past_blanks(text, at) + 1)
        if key not in CATEGORIES or text[at] != "[":
            _, at = decoder.raw_decode(text, at)
            continue
        at += 1
        while text[at := _past_blanks(text, at)] != "]":
            if text[at] == ",":
                at += 1
                continue
            value, end = decoder.raw_decode(text, at)
            if isinstance(value, dict):
                yield key, value, at
            at = end
        at += 1


def _past_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
