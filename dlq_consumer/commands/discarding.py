"""`dlq discard` and `dlq restore`"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import filter_options
from dlq_consumer.commands.running import Load, fail, with_database
from storage import discards
from storage.discards import Estimate
from storage.letter_actions import ActionRefusedError
from storage.letter_filter import LetterFilter
from storage.pool import Pool
from topology import exits

LETTER_IDS = click.argument("letter_ids", type=click.IntRange(min=1), nargs=-1, metavar="[ID...]")
BY = click.option("--by", help="Who does it (default: the user running this).")
YES = click.option("--yes", is_flag=True, help="Do not ask, also for more than one letter.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


@click.command()
@LETTER_IDS
@filter_options
@click.option("--note", required=True, help="Why. Kept with each letter.")
@BY
@YES
@click.option("--dry-run", is_flag=True, help="Only tell how many letters it would be.")
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
    if bool(letter_ids) is not wanted.is_open:
        raise click.UsageError("name letters by ID, or choose them by options such as --queue")
    who = by or getpass.getuser()
    if not letter_ids:
        _discard_all(load, wanted, note, who, yes, dry_run, as_json)
        return
    if dry_run:
        raise click.UsageError("--dry-run goes with a filter")
    count = len(set(letter_ids))
    _confirm(count, "discard", "by id", yes)

    async def run(pool: Pool) -> int:
        return await discards.discard(pool, letter_ids, by=who, why=note)

    _say("discarded", _allowed(load, run), as_json)


@click.command()
@click.argument("letter_ids", type=click.IntRange(min=1), nargs=-1, required=True, metavar="ID...")
@click.option("--note", default="", help="Why. Kept with each letter.")
@BY
@YES
@AS_JSON
@click.pass_obj
def restore(
    load: Load, letter_ids: tuple[int, ...], note: str, by: str | None, yes: bool, as_json: bool
) -> None:
    """Undo a discard: each letter is what it was before. All or none.

    Exit codes: 1 no such letter, or not confirmed, 4 a letter is not discarded.

    Example: dlq restore 17 18 --note "they are needed after all"
    """
    _confirm(len(set(letter_ids)), "restore", "by id", yes)

    async def run(pool: Pool) -> int:
        return await discards.restore(pool, letter_ids, by=by or getpass.getuser(), why=note)

    _say("restored", _allowed(load, run), as_json)


def _discard_all(
    load: Load, wanted: LetterFilter, note: str, by: str, yes: bool, dry_run: bool, as_json: bool
) -> None:
    async def count(pool: Pool) -> Estimate:
        return await discards.estimate(pool, wanted)

    found = with_database(load, count)
    for why, number in found.left_out.items():
        click.echo(f"dlq: left out: {number} {why}", err=True)
    if dry_run:
        _say("would be discarded", found.letters, as_json, name="would_discard")
        return
    if found.letters:
        _confirm(found.letters, "discard", wanted.words, yes)

    async def run(pool: Pool) -> int:
        done = 0
        try:
            async for number in discards.discard_all(pool, wanted, last=found.last, by=by, why=note):
                done += number
        except asyncio.CancelledError:
            click.echo(f"dlq: interrupted: {done} letters are discarded", err=True)
            raise
        return done

    _say("discarded", with_database(load, run), as_json)


def _allowed(load: Load, run: Callable[[Pool], Awaitable[int]]) -> int:
    async def guarded(pool: Pool) -> int:
        try:
            return await run(pool)
        except ActionRefusedError as error:
            fail(str(error), exits.CONFLICT if error.conflict else exits.FAILED)

    return with_database(load, guarded)


def _confirm(count: int, verb: str, what: str, yes: bool) -> None:
    if count > 1 and not yes:
        click.confirm(f"{verb} {count} letters ({printing.plain(what)})?", abort=True, err=True)


def _say(done: str, count: int, as_json: bool, name: str = "") -> None:
    if as_json:
        printing.json_line({name or done: count})
    else:
        click.echo(f"{count} letter{'' if count == 1 else 's'} {done}")
