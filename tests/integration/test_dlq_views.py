"""What `dlq` prints on a terminal, in numbers, and for shells."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import Result

from tests.support.dlq_here import dlq_here
from tests.support.letter_rows import prepare, store
from tests.support.processes import clean_environment, console_script
from tests.support.shared import Places
from tests.support.stack import Stack
from tests.support.waiting import eventually

DLQ = "dlq_consumer.cli:main"


def here(stack: Stack, *arguments: str) -> Result:
    return dlq_here(stack.settings, stack.processes.directory, *arguments)


@pytest.fixture(scope="module")
def stored(places: Places) -> Iterator[Stack]:
    with places.fresh() as (vhost, database, processes):
        prepare(database)
        store(database, 3, task="a-task-with-a-name-that-is-much-too-long-for-any-column-" + "x" * 60)
        store(database, 2)
        database.execute("update redrive.dead_letters set state = 'discarded' where id = 5")
        database.execute("update redrive.dead_letters set dead_at = now() - interval '50 hours' where id = 1")
        yield Stack(vhost, database, processes)


def on_a_terminal(stack: Stack, *arguments: str, width: int = 100) -> str:
    """What a person sees, control sequences included."""
    ours, theirs = pty.openpty()
    environment = clean_environment(stack.settings) | {"COLUMNS": str(width), "TERM": "xterm-256color"}
    process = subprocess.Popen(console_script(DLQ, *arguments), env=environment, stdout=theirs)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65_536):
            seen += piece
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    return seen.decode()


def test_a_table_fits_the_terminal_and_has_colours(stored: Stack) -> None:
    lines = click.unstyle(on_a_terminal(stored, "list")).splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "5", "4", "3", "2", "1"]
    assert max(len(line) for line in lines) <= 100
    assert "…" in lines[3]
    assert "\x1b[31mopen" in on_a_terminal(stored, "list", "--state", "open")
    assert "\x1b" not in here(stored, "list").stdout
    assert "\x1b[1mreason" in on_a_terminal(stored, "show", "1")


def test_ctrl_c_at_a_question_ends_with_130_and_nothing_is_changed(stored: Stack) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        console_script(DLQ, "discard", "1", "2", "--note", "n"), env=clean_environment(stored.settings),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal to it
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while b"discard 2 letters" not in seen:
        seen += os.read(ours, 1_024)

    def ended() -> bool:
        # Again after a while: readline misses a signal that comes just before it begins to wait.
        os.write(ours, b"\x03")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        return process.returncode is not None

    eventually(ended, 60, "the command ends")
    assert process.returncode == 130
    os.close(ours)
    assert here(stored, "list", "--state", "discarded", "--json").stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", [("list",), ("tail",), ("export",)])
def test_a_full_disk_is_told_and_is_none_of_the_databases(stored: Stack, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            console_script(DLQ, *arguments), env=clean_environment(stored.settings),
            cwd=stored.processes.directory, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    told = done.stderr.decode()
    assert (done.returncode, told.count("\n"), "No space left on device" in told) == (1, 1, True), told


def test_a_list_goes_on_where_it_ended(stored: Stack) -> None:
    first = here(stored, "list", "--limit", "3", "--json")
    assert [json.loads(line)["id"] for line in first.stdout.splitlines()] == [5, 4, 3]
    table = here(stored, "list", "--limit", "3")
    assert table.stderr == "more: --before 3\n"
    rest = here(stored, "list", "--before", "3", "--json")
    assert [json.loads(line)["id"] for line in rest.stdout.splitlines()] == [2, 1]
    for wrong in (("--before", "x"), ("--before", "3@5"), ("--before", "3", "--since", "1h")):
        assert here(stored, "list", *wrong).exit_code == 2


def test_stats_count_what_is_there(stored: Stack) -> None:
    found: dict[str, Any] = json.loads(here(stored, "stats", "--json").stdout)
    assert (found["letters"], found["states"]) == (5, {"open": 4, "discarded": 1})
    assert found["queues"] == {"q": {"open": 4, "discarded": 1}}
    assert found["reasons"] == {"exception": {"open": 4, "discarded": 1}}
    assert [(group["group"], group["undecided"]) for group in found["groups"]] == [("g", 4)]
    assert (len(found["hours"]), sum(hour["letters"] for hour in found["hours"])) == (24, 5)
    assert (found["oldest_undecided"]["id"], found["newest"]["id"]) == (1, 5)
    printed = here(stored, "stats").stdout
    for words in ("oldest undecided  1, died 2 d 2 h ago", "QUEUE  OPEN  REPLAYING", "▇"):
        assert words in printed


def test_stats_of_nothing(stack: Stack) -> None:
    done = here(stack, "stats")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "letters  0" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_options_and_choices(stored: Stack, shell: str) -> None:
    script = here(stored, "completion", shell)
    assert script.exit_code == 0, script.stderr
    assert "_DLQ_COMPLETE" in script.stdout
    if shell != "bash" or shutil.which("bash") is None:
        return
    # As the shell asks when TAB is pressed.
    asked = {
        "dlq sh": "show",
        "dlq list --sta": "--state",
        "dlq list --state q": "quarantined",
        "dlq groups reg": "regroup",
    }
    for line, answer in asked.items():
        words = f'COMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}; _dlq_completion "$DLQ"'
        ask = f'{script.stdout}\n{words}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        directory = stored.processes.directory
        command = directory / "dlq"
        command.write_text(f"#!{sys.executable}\nfrom dlq_consumer.cli import main\nmain()\n")
        command.chmod(0o755)
        environment = clean_environment(stored.settings) | {"DLQ": str(command)}
        done = subprocess.run(
            ["bash", "-c", ask], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout.splitlines() == [answer], (done.stdout, done.stderr)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_reader_who_has_enough_ends_a_tail_without_a_word(
    stored: Stack, arguments: tuple[str, ...]
) -> None:
    process = subprocess.Popen(
        console_script(DLQ, "tail", "-n", "1", *arguments), env=clean_environment(stored.settings),
        cwd=stored.processes.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    while b"exception" not in process.stdout.readline():
        pass
    process.stdout.close()
    store(stored.database, 1, task="after it is closed")
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (1, b"")
