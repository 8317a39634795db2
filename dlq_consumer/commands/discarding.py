"""`dlq discard` and `dlq restore`"""

from __future__ import annotations

import asyncio
import getpass
from dataclasses import dataclass

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import LETTER_ID, filter_options
from dlq_consumer.commands.running import Load, fail, with_database
from dlq_consumer.commands.wording import NAME, Words
from storage import discards
from storage.discards import DISCARD, RESTORE, Decision, Estimate
from storage.letter_actions import MAX_NOTE, ActionRefusedError
from storage.letter_filter import LetterFilter
from storage.pool import Pool
from topology import exits

LETTER_IDS = click.argument("letter_ids", type=LETTER_ID, nargs=-1, metavar="[ID...]")
BY = click.option("--by", type=NAME, help="Who does it (default: the user running this).")
YES = click.option("--yes", is_flag=True, help="Do not ask, also for more than one letter.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Only tell how many letters of a filter it would be.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@dataclass(frozen=True)
class How:
    """What both commands are told beside which letters."""

    why: str
    by: str | None
    yes: bool
    dry_run: bool
    as_json: bool

    @property
    def who(self) -> str:
        return self.by or getpass.getuser()


@click.command()
@LETTER_IDS
@filter_options
@click.option("--note", type=Words(MAX_NOTE), required=True, help="Why. Kept with each letter.")
@BY
@YES
@DRY_RUN
@AS_JSON
@click.pass_obj
def discard(
    load: Load, letter_ids: tuple[int, ...], wanted: LetterFilter, note: str, by: str | None, yes: bool,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Decide that letters are not to be sent again: these, or all that a filter finds.

    Their bytes are kept, and `dlq restore` undoes it. Their jobs stay DEAD. Open
    and quarantined letters can be discarded, and replayed ones of unknown outcome; none while its replay is
    not over. Of ids all are discarded or none. With a filter those that cannot be are left out, and the rest
    goes 1,000 at a time: interrupted, it is run again.

    Exit codes: 1 no such letter, or not confirmed, 4 a letter does not allow it.

    Example: dlq discard --queue payments --reason malformed --note "the old client sent XML"
    """
    if not note.strip():
        raise click.UsageError("--note: say why")
    _decide(load, DISCARD, letter_ids, wanted, How(note, by, yes, dry_run, as_json))


@click.command()
@LETTER_IDS
@filter_options
@click.option("--note", type=Words(MAX_NOTE), default="", help="Why. Kept with each letter.")
@BY
@YES
@DRY_RUN
@AS_JSON
@click.pass_obj
def restore(
    load: Load, letter_ids: tuple[int, ...], wanted: LetterFilter, note: str, by: str | None, yes: bool,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Undo a discard: each letter is what it was before. Of ids all or none; of a filter those discarded.

    Exit codes: 1 no such letter, or not confirmed, 4 a letter is not discarded.

    Example: dlq restore 17 18 --note "they are needed after all"
    """
    _decide(load, RESTORE, letter_ids, wanted, How(note, by, yes, dry_run, as_json))


def _decide(
    load: Load, decision: Decision, letter_ids: tuple[int, ...], wanted: LetterFilter, how: How
) -> None:
    if bool(letter_ids) is not wanted.is_open:
        raise click.UsageError("name letters by ID, or choose them by options such as --queue")
    if not letter_ids:
        _decide_all(load, decision, wanted, how)
        return
    if how.dry_run:
        raise click.UsageError("--dry-run goes with a filter")
    _confirm(len(set(letter_ids)), decision, "by id", how.yes)

    async def run(pool: Pool) -> int:
        try:
            return await discards.decide(pool, decision, letter_ids, by=how.who, why=how.why)
        except ActionRefusedError as error:
            fail(str(error), exits.CONFLICT if error.conflict else exits.FAILED)

    _say(decision, with_database(load, run, changes=True), how.as_json)


def _decide_all(load: Load, decision: Decision, wanted: LetterFilter, how: How) -> None:
    async def count(pool: Pool) -> Estimate:
        return await discards.estimate(pool, decision, wanted)

    found = with_database(load, count)
    for why, number in found.left_out.items():
        click.echo(f"dlq: left out: {number} {why}", err=True)
    if how.dry_run:
        _say(decision, found.letters, how.as_json, would=True)
        return
    if found.letters:
        _confirm(found.letters, decision, wanted.words, how.yes)

    async def run(pool: Pool) -> int:
        done = 0
        try:
            async for number in discards.decide_all(
                pool, decision, wanted, found=found, by=how.who, why=how.why
            ):
                done += number
        except asyncio.CancelledError:
            click.echo(f"dlq: interrupted: {done} letters are {decision.done}", err=True)
            raise
        return done

    _say(decision, with_database(load, run, changes=True), how.as_json)


def _confirm(count: int, decision: Decision, what: str, yes: bool) -> None:
    if count > 1 and not yes:
        asked = f"{decision.action} {count} letters ({printing.plain(what)})?"
        click.confirm(asked, abort=True, err=True)


def _say(decision: Decision, count: int, as_json: bool, *, would: bool = False) -> None:
    done = decision.done
    if as_json:
        printing.json_line({f"would_{decision.action}" if would else done: count})
    else:
        what = f"would be {done}" if would else done
        click.echo(f"{count} letter{'' if count == 1 else 's'} {what}")
