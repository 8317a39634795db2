"""What the documents name exists: links, make targets, commands, settings, dependencies, story steps."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import click
import pytest

from tests.chaos.test_story import STEPS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = {
    "api-keys": "api.keys_cli",
    "dlq": "dlq_consumer.cli",
    "storage": "storage.cli",
    "topology": "topology.cli",
    "workers": "workers.cli",
}
documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)


def code(document: Path) -> Iterator[str]:
    """Inline code and indented blocks, without the output that is quoted in the README."""
    text = document.read_text(encoding="utf-8")
    text = re.sub(r"(?ms)^## The story$.*?^## ", "## ", text)
    yield from re.findall(r"`([^`\n]+)`", text)
    yield from (line.strip() for line in text.splitlines() if line.startswith("    "))


@documents
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (document.parent / target).exists()] == []


@documents
def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {match[1] for piece in code(document) if (match := re.match(r"make ([a-z]+)", piece))}
    assert named - targets == set()


@documents
def test_commands_exist(document: Path) -> None:
    named = {
        (match[1], match[2])
        for piece in code(document)
        for match in re.finditer(rf"(?:^|\s)({'|'.join(COMMANDS)}) ([a-z]+)", piece)
    }
    groups: dict[str, click.Group] = {name: import_module(module).main for name, module in COMMANDS.items()}
    known = {name: group.list_commands(click.Context(group)) for name, group in groups.items()}
    assert [(name, sub) for name, sub in named if sub not in known[name]] == []


@documents
def test_settings_exist(document: Path) -> None:
    known = set(
        re.findall(
            r"^(?:# )?(REDRIVE_\w+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    named = set(re.findall(r"REDRIVE_[A-Z0-9_]*[A-Z0-9]\b(?!_)", document.read_text(encoding="utf-8")))
    assert named - known == set()


def declared() -> tuple[set[str], set[str]]:
    """Names of the dependencies at run time, and of those for development."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def names(needed: list[str]) -> set[str]:
        return {match[0] for need in needed if (match := re.match(r"[A-Za-z0-9_\-]+", need))}

    return names(project["project"]["dependencies"]), names(project["dependency-groups"]["dev"])


def test_each_dependency_has_its_reason() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| ([a-z0-9\-]+) \| [A-Z]", text, re.MULTILINE)) == set.union(*declared())


@pytest.mark.parametrize(
    "package",
    ["api", "benchmarks", "dev", "dlq_consumer", "outbound", "storage", "topology", "workers", "tests"],
)
def test_what_is_imported_is_declared(package: str) -> None:
    at_run_time, for_development = declared()
    allowed = set(at_run_time)
    if package in ("dev", "tests"):  # what pydantic-settings brings: see docs/dependencies.md
        allowed |= for_development | {"python-dotenv"}
    brought_by = packages_distributions()
    found = {
        name.replace("_", "-").lower()
        for file in (ROOT / package).rglob("*.py")
        for module in imported(file)
        for name in brought_by.get(module, [])
    }
    assert found - allowed - {"redrive"} == set()


def imported(file: Path) -> set[str]:
    """Top-level names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def test_the_readme_tells_the_story_that_is_told() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [step for number, step in enumerate(STEPS, 1) if f"    {number}. {step}" not in text] == []
