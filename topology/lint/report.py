"""What one run of the linter found, as each of the formats prints it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass

from topology.lint.finding import Finding
from topology.lint.places import Places


@dataclass(frozen=True)
class Report:
    """Findings in the order in which they are printed.

    Attributes:
        source: what was linted, for messages.
        target: the RabbitMQ version whose rules were applied, and why this one.
        file: the file's path, where the source is one.
        places: where in that file an entity stands.
    """

    source: str
    target: str
    target_reason: str
    queues: int
    findings: tuple[Finding, ...]
    file: str | None = None
    places: Places | None = None

    def counts(self) -> Counter[str]:
        """Findings by severity."""
        return Counter(finding.severity for finding in self.findings)


def as_json_lines(report: Report) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(asdict(finding), ensure_ascii=True) + "\n" for finding in report.findings)


def plain(text: str) -> str:
    """One line without control characters: names come from a file or a broker, and a terminal obeys."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
