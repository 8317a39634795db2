"""`dlq list` and `dlq show`"""

from __future__ import annotations

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import LETTER_ID, filter_options
from dlq_consumer.commands.running import Load, with_database
from dlq_consumer.dossier import print_dossier
from storage import letters
from storage.letter_filter import LetterFilter
from storage.letter_pages import MAX_PAGE, OTHER_FILTER, Cursor, Page, collect
from storage.letters import Dossier, Letter
from storage.pool import Pool
from topology.letter_view import view_letter, view_properties

HEADS = ("ID", "QUEUE", "REASON", "STATE", "TASK", "JOB", "EXCEPTION", "DEAD AT")


def _cursor(context: click.Context, parameter: click.Parameter, value: str | None) -> Cursor | None:
    try:
        return None if value is None else Cursor.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("list")
@filter_options
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True)
@click.option("--before", callback=_cursor, metavar="CURSOR", help="Go on where a list ended, as it says.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_obj
def list_letters(load: Load, wanted: LetterFilter, limit: int, before: Cursor | None, as_json: bool) -> None:
    """Dead letters, the newest first: by id, with --since or --until by time of death.

    A search with --text reads bodies one by one, the newest first, as far as it has to.

    \b
    Examples:
      dlq list --queue payments --undecided
      dlq list --exception TimeoutError --since 2h --json | jq .job_id

    When more follow, the last line (on standard error) says with which --before to go on.
    """

    if before is not None and not before.fits(wanted):
        raise click.BadParameter(OTHER_FILTER, param_hint="--before")

    async def read(pool: Pool) -> Page:
        return await collect(pool, wanted, limit=limit, after=before)

    page = with_database(load, read)
    found = page.letters
    if as_json:
        for letter in found:
            view = view_properties(letter.properties)
            printing.json_line(letter.as_json(headers=view.headers, deaths=view.deaths))
    else:
        printing.table(HEADS, [cells(letter) for letter in found])
    if page.next is not None:
        click.echo(f"more: --before {page.next}", err=True)


@click.command()
@click.argument("letter_id", type=LETTER_ID, metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def show(load: Load, letter_id: int, as_json: bool) -> None:
    """Everything known about one letter: why it died, each attempt, headers with their types, body, replays.

    Bodies that are compressed or pickled are named as such and not opened.

    Exit codes: 1 also when there is no such letter.

    Example: dlq show 17
    """

    async def read(pool: Pool) -> Dossier:
        return await letters.dossier(pool, letter_id)

    found = with_database(load, read)
    edited = view_letter(found.edit.properties, found.edit.body) if found.edit else None
    shown = found.as_json(view_letter(found.letter.properties, found.body), edited)
    if as_json:
        printing.json_line(shown)
    else:
        print_dossier(shown)


def cells(letter: Letter) -> tuple[object, ...]:
    """A letter's row under `HEADS`."""
    dead_at = letter.dead_at.isoformat(timespec="seconds") if letter.dead_at else None
    of = letter.duplicate_of
    state = letter.state if of is None else f"{letter.state}, duplicate of {of}"
    return (
        letter.id, letter.queue, letter.reason, state, letter.task, letter.job_id,
        letter.exception_type, dead_at,
    )  # fmt: skip
