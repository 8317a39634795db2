"""The alert rules: their own tests, and that what they speak of exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.databases import ROOT
from tests.support.promtool import promtool

RULES = ROOT / "docs" / "prometheus" / "redrive.rules.yml"
TESTS = sorted((ROOT / "tests" / "prometheus").glob("*.test.yml"))


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_the_rules_are_well_formed() -> None:
    promtool("check", "rules", str(RULES))


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_each_rule_fires_when_it_should_and_not_before(file: Path) -> None:
    promtool("test", "rules", str(file))


def test_each_rule_is_tested_both_ways() -> None:
    text = "".join(file.read_text() for file in TESTS)
    quiet = set(re.findall(r"\{eval_time: \w+, alertname: (\w+)\}", text))
    firing = set(re.findall(r"alertname: (\w+)\n +exp_alerts:\n +- exp_labels", text))
    assert (set(alerts()) - quiet, set(alerts()) - firing) == (set(), set())


def test_each_rule_has_a_summary_and_a_section_of_the_runbook() -> None:
    text = RULES.read_text()
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "operate.md").read_text(), re.MULTILINE)
    assert headings == alerts()
    assert re.findall(r"runbook_url: (\S+)", text) == [f"docs/operate.md#{name.lower()}" for name in alerts()]
    assert len(re.findall(r"summary: '.+'", text)) == len(alerts())
