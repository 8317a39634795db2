"""The report for people: by virtual host and entity, the notes in short."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

import click

from topology.lint.finding import Finding
from topology.lint.report import Report, plain

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_INDENT = " " * 4


def as_text(report: Report, *, every_note: bool = False) -> str:
    """Errors and warnings in full; of the notes (`info`) one line per code, unless `every_note`.

    With ANSI colours; `click.echo` takes them out where nobody sees them.
    """
    shown = [finding for finding in report.findings if every_note or finding.severity != "info"]
    notes = [] if every_note else [finding for finding in report.findings if finding.severity == "info"]
    lines = [*_entities(report, shown), *_in_short(notes), *_summary(report)]
    return "".join(f"{line}\n" for line in lines)


def _entities(report: Report, findings: Sequence[Finding]) -> Iterator[str]:
    # What is worst comes first, and all that is said of one entity stands together.
    grouped: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        grouped[finding.vhost, finding.entity].append(finding)
    for vhost, entities in groupby(_by_vhost(grouped), key=lambda key: key[0]):
        if vhost:
            yield click.style(f"virtual host {plain(vhost)}", bold=True)
            yield ""
        for key in entities:
            yield f"{click.style(plain(key[1]), bold=True)}{_where(report, grouped[key][0])}"
            for finding in grouped[key]:
                yield from _told(finding)
            yield ""


def _by_vhost(
    keys: Iterator[tuple[str, str]] | dict[tuple[str, str], list[Finding]],
) -> list[tuple[str, str]]:
    return sorted(keys, key=lambda key: key[0])


def _where(report: Report, finding: Finding) -> str:
    place = report.places.of(finding) if report.places else None
    return f"  {plain(report.file or report.source)}:{place.line}" if place else ""


def _told(finding: Finding) -> Iterator[str]:
    head = click.style(f"{finding.severity} {finding.code}", fg=_COLOURS[finding.severity])
    versions = "" if finding.versions == "3.10+" else f" [RabbitMQ {finding.versions}]"
    yield f"  {head}{versions}  {plain(finding.message)}"
    if finding.path and finding.path != (finding.message,):
        yield f"{_INDENT}{click.style(plain(' → '.join(finding.path)), dim=True)}"
    yield f"{_INDENT}fix: {plain(finding.fix)}"


def _in_short(notes: Sequence[Finding]) -> Iterator[str]:
    by_code: dict[str, list[Finding]] = defaultdict(list)
    for finding in notes:
        by_code[finding.code].append(finding)
    if not by_code:
        return
    yield click.style("notes (--notes tells each)", bold=True)
    for code, found in sorted(by_code.items()):
        names = list(dict.fromkeys(plain(finding.entity) for finding in found))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"  {click.style(code, fg=_COLOURS['info'])} × {len(found)}: {', '.join(names[:3])}{more}"
    yield ""


def _summary(report: Report) -> Iterator[str]:
    counts = report.counts()
    said = ", ".join(
        f"{counts[severity] or 'no'} {name}{'' if counts[severity] == 1 else 's'}"
        for severity, name in (("error", "error"), ("warning", "warning"), ("info", "note"))
    )
    queues = f"{report.queues:,} queue{'' if report.queues == 1 else 's'}"
    yield f"{plain(report.source)}, {queues}: {said}"
    yield f"linted for RabbitMQ {report.target} ({plain(report.target_reason)})"
    if report.findings:
        yield f"next: topology explain {report.findings[0].code}"
