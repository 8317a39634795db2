"""The linter's report as text, as JSON lines and as SARIF."""

from __future__ import annotations

import json
import re
from typing import Any

import click
import pytest

from topology.lint.codes import CATALOGUE, found
from topology.lint.finding import Finding
from topology.lint.read import read_with_places
from topology.lint.report import Report, as_json_lines
from topology.lint.sarif import as_sarif
from topology.lint.text import as_text

TEXT = """{"vhosts": [{"name": "/"}],
 "queues": [
  {"name": "orders", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}}
 ]}
"""
UNROUTABLE = found(
    "DLX-UNROUTABLE",
    "/",
    "queue 'orders'",
    "rejected messages are lost",
    "bind a queue to exchange 'dlx'",
    ("queue 'orders' rejects", "exchange 'dlx' (direct), key 'orders'", "no binding"),
)
DROP = found("DROP-TTL", "/", "queue 'orders'", "expired messages are lost", "set a dead-letter exchange")
NOTES = tuple(
    found("NO-DLX", "shop", f"queue 'q{number}'", "rejected messages are lost", "set one")
    for number in range(5)
)
FILE_WIDE = found("JSON-INVALID", "", "file", "a comma", "remove it", versions="3.13+")


def report(*findings: Finding, file: str | None = "a b/defs.json") -> Report:
    _, places = read_with_places(TEXT.encode(), "defs.json")
    return Report("defs.json", "4.3", "the newest", 1, findings, file, places if file else None)


def text(*findings: Finding, **options: bool) -> str:
    return click.unstyle(as_text(report(*findings), **options))


def test_text_groups_by_virtual_host_and_entity_with_path_and_fix() -> None:
    assert (
        text(FILE_WIDE, UNROUTABLE, DROP)
        == """\
file
  error JSON-INVALID [RabbitMQ 3.13+]  a comma
    fix: remove it

virtual host /

queue 'orders'  a b/defs.json:3
  error DLX-UNROUTABLE  rejected messages are lost
    queue 'orders' rejects → exchange 'dlx' (direct), key 'orders' → no binding
    fix: bind a queue to exchange 'dlx'
  warning DROP-TTL  expired messages are lost
    fix: set a dead-letter exchange

defs.json, 1 queue: 2 errors, 1 warning, no notes
linted for RabbitMQ 4.3 (the newest)
next: topology explain JSON-INVALID
"""
    )


def test_text_tells_notes_in_short_unless_asked() -> None:
    short = text(*NOTES)
    assert "NO-DLX × 5: queue 'q0', queue 'q1', queue 'q2' and 2 more" in short
    assert "queue 'q4'" not in short
    assert "no errors, no warnings, 5 notes" in short
    long = text(*NOTES, every_note=True)
    assert "virtual host shop" in long
    assert long.count("info NO-DLX") == 5


def test_text_of_nothing_is_the_summary_alone() -> None:
    assert (
        text()
        == "defs.json, 1 queue: no errors, no warnings, no notes\nlinted for RabbitMQ 4.3 (the newest)\n"
    )


def test_no_name_reaches_a_terminal_as_a_command() -> None:
    nasty = found("NO-DLX", "v\x1b[2J", "queue 'a\x07'", "line\nbreak \u202e", "f\x9bix", ("p\r",))
    shown = text(nasty, every_note=True)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "v\\x1b[2J" in shown


def test_json_is_one_object_a_line_with_the_stable_fields() -> None:
    lines = as_json_lines(report(UNROUTABLE, DROP)).splitlines()
    assert json.loads(lines[0]) == {
        "code": "DLX-UNROUTABLE",
        "severity": "error",
        "vhost": "/",
        "entity": "queue 'orders'",
        "path": ["queue 'orders' rejects", "exchange 'dlx' (direct), key 'orders'", "no binding"],
        "message": "rejected messages are lost",
        "fix": "bind a queue to exchange 'dlx'",
        "versions": "3.10+",
    }
    assert len(lines) == 2
    assert as_json_lines(report()) == ""


def sarif(*findings: Finding, file: str | None = "a b/defs.json") -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(as_sarif(report(*findings, file=file)))
    return parsed


def test_sarif_has_what_the_schema_requires() -> None:
    log = sarif(UNROUTABLE, DROP, *NOTES, FILE_WIDE)
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["DLX-UNROUTABLE", "DROP-TTL", "NO-DLX", "JSON-INVALID"]
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert len(rule["fullDescription"]["text"]) > len(rule["shortDescription"]["text"])
        assert rule["help"]["text"]
        assert re.fullmatch(r"https://www\.rabbitmq\.com/docs/[\w\-/#]+", rule["helpUri"])
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        assert len(result["locations"]) == 1
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] >= 1
        assert region["startColumn"] >= 1
        assert result["partialFingerprints"]
    assert [result["level"] for result in run["results"]] == ["error", "warning", *["note"] * 5, "error"]


def test_sarif_names_the_line_where_the_entity_stands_and_the_file_as_a_uri() -> None:
    (result,) = sarif(UNROUTABLE)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b/defs.json"}
    assert place["region"] == {"startLine": 3, "startColumn": 3}


def test_sarif_of_a_broker_has_logical_locations_alone() -> None:
    (result,) = sarif(UNROUTABLE, file=None)["runs"][0]["results"]
    assert result["locations"] == [
        {
            "logicalLocations": [
                {"name": "queue 'orders'", "fullyQualifiedName": "/: queue 'orders'", "kind": "resource"}
            ]
        }
    ]


def test_fingerprints_tell_findings_apart_and_survive_a_new_wording() -> None:
    def prints(*findings: Finding) -> list[str]:
        return [
            next(iter(result["partialFingerprints"].values()))
            for result in sarif(*findings)["runs"][0]["results"]
        ]

    twice = prints(UNROUTABLE, DROP, DROP, *NOTES)
    assert len(set(twice)) == len(twice)
    reworded = found("DLX-UNROUTABLE", "/", "queue 'orders'", "another wording", "another fix")
    assert prints(reworded) == prints(UNROUTABLE)


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_code_is_a_sarif_rule(code: str) -> None:
    log = sarif(found(code, "", "file", "m", "f"))
    (rule,) = log["runs"][0]["tool"]["driver"]["rules"]
    assert rule["name"].isalnum()
