"""Each code has its page and its row in the documentation, and nothing else has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from topology.lint.codes import CATALOGUE, found
from topology.lint.explain import UnknownCodeError, page

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "topology" / "lint" / "pages"


def test_codes_and_pages_are_the_same() -> None:
    assert sorted(file.stem for file in PAGES.iterdir()) == sorted(CATALOGUE)


@pytest.mark.parametrize("code", CATALOGUE.values(), ids=lambda code: code.code)
def test_a_page_says_what_the_catalogue_says(code: object) -> None:
    known = CATALOGUE[code.code]  # type: ignore[attr-defined]
    lines = page(known.code).splitlines()
    assert lines[0] == f"# {known.code}: {known.title}"
    assert lines[2] == f"Severity: {known.severity}. RabbitMQ: {known.versions}."
    assert [line for line in lines if line.startswith("## ")] == ["## Fix", "## Source"]
    assert re.search(r"https://www\.(rabbitmq\.com|rfc-editor\.org)/", lines[-1])


def test_the_list_of_codes_is_complete() -> None:
    rows = re.findall(
        r"^\| \[([A-Z-]+)\]\(\.\./topology/lint/pages/\1\.md\) \| (\w+) \| (\S+) \| (.+) \|$",
        (ROOT / "docs" / "lint.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert rows == [(code.code, code.severity, code.versions, code.title) for code in CATALOGUE.values()]


def test_every_code_is_used_in_a_rule_or_in_reading() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "topology" / "lint").rglob("*.py"))
    catalogue = (ROOT / "topology" / "lint" / "codes.py").read_text(encoding="utf-8")
    unused = [code for code in CATALOGUE if sources.count(f'"{code}"') == catalogue.count(f'"{code}"')]
    assert unused == []


def test_pages_name_only_codes_that_exist() -> None:
    named = {
        word
        for file in PAGES.iterdir()
        for word in re.findall(r"\b[A-Z]{2,}(?:-[A-Z]+)+\b", file.read_text(encoding="utf-8"))
    }
    assert named - set(CATALOGUE) - {"AMQP-0", "UTF-8"} == set()


def test_a_page_is_found_in_lower_case() -> None:
    assert page("dlx-missing") == page("DLX-MISSING")


def test_an_unknown_code_names_similar_ones() -> None:
    with pytest.raises(UnknownCodeError, match="did you mean DLX-MISSING"):
        page("DLX-MISING")


def test_a_finding_has_the_severity_of_its_code() -> None:
    assert found("DLX-MISSING", "/", "queue 'a'", "m", "f").severity == "error"
    with pytest.raises(KeyError):
        found("NO-SUCH", "/", "queue 'a'", "m", "f")
