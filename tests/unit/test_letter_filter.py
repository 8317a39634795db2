"""One condition for whoever reads or changes several letters."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from dlq_consumer.commands.filtering import filter_options
from storage.letter_filter import LetterFilter, Parameters, where


def test_all_that_is_given_must_hold_and_each_value_is_a_parameter() -> None:
    values = Parameters("first")
    found = where(LetterFilter(queue="q'", task="t", state="open"), values)
    other = "(l.dlq <> l.queue || '.dlq' AND l.dlq BETWEEN $2 AND $2 AND l.queue <> $2)"
    queue = f"(l.queue = $2 OR {other})"
    assert found == f"{queue} AND l.task = $3 AND l.state = 'open'"
    assert values.values == ["first", "q'", "t"]
    assert where(LetterFilter(), Parameters()) == "true"


def test_text_is_looked_for_as_utf8_and_as_json_escapes_it() -> None:
    values = Parameters()
    where(LetterFilter(text='ä"'), values)
    assert values.values == ['ä"'.encode(), rb"\u00e4\"", rb'\u00e4"']
    values = Parameters()
    where(LetterFilter(text="plain"), values)
    assert values.values == [b"plain"]
    where(LetterFilter(text="\udcff"), values := Parameters())
    assert values.values[0] == b"\xff"


def test_a_state_that_does_not_exist_reaches_no_statement() -> None:
    with pytest.raises(ValueError, match="no state"):
        where(LetterFilter(state="open' OR true"), Parameters())


def test_a_filter_says_what_it_chooses() -> None:
    assert LetterFilter().words == "every letter"
    assert LetterFilter(queue="q", undecided=True).words == "queue=q undecided"
    assert (LetterFilter().is_open, LetterFilter(undecided=True).is_open) == (True, False)


def test_a_command_gets_its_options_as_one_filter() -> None:
    got: list[tuple[LetterFilter, int]] = []

    @click.command()
    @filter_options
    @click.option("--limit", type=int)
    def find(wanted: LetterFilter, limit: int) -> None:
        got.append((wanted, limit))

    done = CliRunner().invoke(
        find, ["--since", "2h ago", "--until", "2026-01-01", "--job", "j", "--exception", "E", "--limit", "3"]
    )
    assert done.exit_code == 0, done.output
    ((wanted, limit),) = got
    assert (wanted.job_id, wanted.exception, limit) == ("j", "E", 3)
    assert wanted.until == datetime(2026, 1, 1, tzinfo=UTC)
    assert wanted.since is not None
    assert 7_190 < (datetime.now(UTC) - wanted.since).total_seconds() < 7_300
    wrong = CliRunner().invoke(find, ["--since", "soon"])
    assert wrong.exit_code == 2
    assert "'soon' is not a time: ISO 8601" in wrong.output
