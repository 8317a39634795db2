"""Each operation has its command and its route, and the documents name both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from dlq_consumer.cli import main
from tests.support.command_tree import commands_of
from tests.unit.test_api_doors import application, routes

DOCUMENT = Path(__file__).parents[2] / "docs" / "http.md"
OF_LETTERS = ("/dead-letters", "/groups", "/alerts", "/replays", "/callbacks", "/stream")


def table() -> list[list[str]]:
    text = DOCUMENT.read_text(encoding="utf-8").partition("## The same by command")[2]
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]


def commands(group: click.Group, name: str) -> Iterator[str]:
    for sub, command in commands_of(group):
        path = f"{name} {sub}"
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield path
        if isinstance(command, click.Group):
            yield from commands(command, path)


def test_the_table_names_each_command_once() -> None:
    named = [name for _, column, _ in table() for name in re.findall(r"`([^`]+)`", column)]
    assert sorted(named) == sorted(commands(main, "dlq"))


def test_the_table_names_each_route_of_dead_letters_once() -> None:
    named = [name for *_, column in table() for name in re.findall(r"`([^`]+)`", column)]
    found = {f"{method} {path}" for method, path in routes(application())}
    assert [name for name in named if name not in found] == []
    assert len(named) == len(set(named))
    theirs = {each for each in found if each.split()[1].startswith(OF_LETTERS)}
    assert {name for name in named if name.split()[1].startswith(OF_LETTERS)} == theirs


def test_what_has_no_route_says_why() -> None:
    for row in table():
        assert len(row) == 3, row
        assert "`" in row[2] or row[2].startswith("none"), row


def test_each_call_that_reads_a_body_has_an_example() -> None:
    paths = application(docs=True).openapi()["paths"]
    bodies = [
        call["requestBody"] for path in paths.values() for call in path.values() if "requestBody" in call
    ]
    assert len(bodies) > 10
    for body in bodies:
        assert "example" in body["content"]["application/json"]
