"""What each `dlq` command tells of itself, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner

from dlq_consumer.cli import main
from dlq_consumer.commands.ending import Commands
from dlq_consumer.commands.wording import Words
from storage.letter_actions import MAX_NAME
from tests.support.command_tree import commands_of
from tests.support.dlq_here import dlq_here

# A process with a log, a script for a shell, and what is JSON lines in any case.
NOT_DATA = {"dlq consume", "dlq completion", "dlq export"}
# What changes letters, or may: of several it asks first.
ASKS = {
    "dlq discard", "dlq restore", "dlq replay", "dlq resume", "dlq cancel", "dlq groups regroup",
    "dlq import", "dlq callbacks retry",
}  # fmt: skip


def commands(group: click.Group, above: click.Context, name: str) -> Iterator[tuple[str, click.Context]]:
    for sub, command in commands_of(group):
        context = click.Context(command, parent=above, info_name=sub)
        yield f"{name} {sub}", context
        if isinstance(command, click.Group):
            yield from commands(command, context, f"{name} {sub}")


FOUND = dict(commands(main, click.Context(main, info_name="dlq"), "dlq"))
each = pytest.mark.parametrize(("name", "context"), FOUND.items(), ids=FOUND)


@each
def test_it_has_an_example_and_names_its_exit_codes(name: str, context: click.Context) -> None:
    told = context.command.get_help(context)
    assert "\b" not in told
    assert f"{name} " in told.partition("\n")[0] + " "
    words = " ".join(told.split())
    assert "Example" in words or f"  {name} " in told, told
    assert "0 done, 1 failed, 2 wrong usage or setting, 130 interrupted" in words


@each
def test_it_answers_in_json_when_asked(name: str, context: click.Context) -> None:
    options = {option for parameter in context.command.params for option in parameter.opts}
    assert ("--json" in options) is (name not in NOT_DATA)


@each
def test_it_asks_before_it_touches_several_letters(name: str, context: click.Context) -> None:
    options = {option for parameter in context.command.params for option in parameter.opts}
    assert ("--yes" in options) is (name in ASKS)


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


def refused() -> NoReturn:
    raise click.Abort


@pytest.mark.parametrize(("happens", "code"), [(interrupted, 130), (refused, 1)])
def test_ctrl_c_ends_with_130_and_a_no_with_1(happens: Callable[[], Any], code: int) -> None:
    group = Commands("dlq")
    group.add_command(click.Command("do", callback=happens))
    assert CliRunner().invoke(group, ["do"]).exit_code == code


def test_what_people_write_is_refused_where_it_is_too_long_to_be_kept_and_never_cut() -> None:
    notes: dict[str, int] = {}
    for name, context in FOUND.items():
        for option in context.command.params:
            if "--note" in option.opts:
                assert isinstance(option.type, Words), name
                notes[name] = option.type.most
            if "--by" in option.opts and name != "dlq audit":  # there it chooses
                assert isinstance(option.type, Words), name
                assert option.type.most == MAX_NAME
    plans, letters = dict.fromkeys(("replay", "pause", "resume", "cancel"), 2_000), 4_000
    decisions = ("discard", "restore", "edit", "import", "group", "alerts snooze", "alerts unsnooze")
    expected = plans | dict.fromkeys(decisions, letters) | {"callbacks retry": 2_000}
    assert notes == {f"dlq {name}": most for name, most in expected.items()}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("discard", "1", "--note", "é" * 4_001),
            "'--note': it has 4,001 characters; 4,000 are kept at most",
        ),
        (("cancel", "a", "--note", "x" * 2_001), "'--note': it has 2,001 characters; 2,000 are kept at most"),
        (("restore", "1", "--by", "x" * 201), "'--by': it has 201 characters; 200 are kept at most"),
    ],
)
def test_too_long_a_note_is_a_wrong_usage(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = dlq_here({}, tmp_path, *arguments)
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
    fits = [word[:-1] if len(word) > 20 else word for word in arguments]
    assert "kept at most" not in dlq_here({}, tmp_path, *fits).stderr
