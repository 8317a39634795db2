"""Every line of the checklist of docs/deploy.md is run, and prints what the document says."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import httpx

from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.unit.test_docs import COMMANDS

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^\| [^|]+ \| `([^`|]+)` \| `([^`|]+)` \|$", re.MULTILINE)


def checklist() -> list[tuple[str, str]]:
    """Command and what it prints."""
    return LINE.findall(
        (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").partition("## Checklist")[2]
    )


def ask(stack: Stack, command: str) -> str:
    """What it prints; it must succeed."""
    name, *arguments = command.split()
    if name == "curl":
        url = arguments[-1].replace("$API", str(stack.http.base_url).rstrip("/"))
        return httpx.get(url, timeout=30).raise_for_status().text
    if name == "celery":
        entry = "celery.__main__:main"
    else:
        module = COMMANDS[name]
        assert import_module(module).main
        entry = f"{module}:main"
    done = stack.command(entry, *arguments)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_each_line_of_the_checklist_prints_what_it_says(stack: Stack) -> None:
    stack.settings["REDRIVE_TIME_SCALE"] = "0.02"  # `topology verify` waits for each step of the ladder
    stack.apply_topology()
    stack.start_api()
    stack.start_worker()
    stack.start_consumer()
    # The management API tells of new queues, consumers and states up to 5 s late.
    eventually(lambda: stack.dlq("check").returncode == 0, 30, "the dead-letter consumer is at work")
    found = {command: (said, ask(stack, command)) for command, said in checklist()}
    assert len(found) >= 10
    assert {command: text for command, (said, text) in found.items() if said not in text} == {}
