"""`dlq callbacks`"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from datetime import UTC
from uuid import UUID

import click

from dlq_consumer import printing
from dlq_consumer.commands.alerts import BY
from dlq_consumer.commands.running import Load, fail, with_database
from dlq_consumer.commands.wording import Words
from storage import callback_list
from storage.callback_list import (
    CALLBACK_STATES,
    MAX_NOTE,
    MAX_PAGE,
    CallbackFilter,
    CallbackRow,
    CallbackState,
    UnknownCallbackError,
)
from storage.group_list import CursorError
from storage.job_callbacks import shown_url
from storage.pool import Pool
from topology import exits

HEADS = ("ID", "MADE AT", "JOB", "ENDED", "STATE", "TRIES", "LAST ANSWER", "RECEIVER")


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice(CALLBACK_STATES), help="What became of it.")
@click.option("--job", "job_id", metavar="ID", help="Of this job.")
@click.option("--receiver", metavar="HOST:PORT", help="To this receiver.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True)
@click.option("--before", metavar="CURSOR", help="Go on where a list ended, as it says.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_context
def callbacks(
    context: click.Context, state: CallbackState | None, job_id: str | None, receiver: str | None, limit: int,
    before: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Callbacks of jobs, the newest first, and what became of each; without a subcommand they are listed.

    \b
    States: pending (a try is due, or will be), delivered, dead (given up, refused or gone: why stands in
    --json). A URL's query is never shown.

    When more follow, the last line (on standard error) says with which --before to go on.

    Exit codes: 1 the database is away, 2 wrong usage.

    Example: dlq callbacks --state dead
    """
    if context.invoked_subcommand is not None:
        return

    async def read(pool: Pool) -> Sequence[CallbackRow]:
        try:
            wanted = CallbackFilter(state, job_id, receiver)
            return await callback_list.newest(pool, wanted, limit=limit + 1, cursor=before)
        except CursorError as error:
            fail(f"--before: {error}", exits.USAGE)

    found = with_database(context.obj, read)
    shown = found[:limit]
    if as_json:
        for callback in shown:
            printing.json_line(callback.as_json())
    else:
        printing.table(HEADS, [_row(each) for each in shown])
    if len(found) > limit:
        click.echo(f"more: --before {shown[-1].cursor}", err=True)


@callbacks.command()
@click.argument("ids", type=click.UUID, nargs=-1, required=True, metavar="ID...")
@click.option("--note", type=Words(MAX_NOTE), default="", help="Why.")
@BY
@click.option("--yes", is_flag=True, help="Do not ask, also for more than one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def retry(load: Load, ids: tuple[UUID, ...], note: str, by: str | None, yes: bool, as_json: bool) -> None:
    """Send callbacks again now, whatever became of them, with all their tries before them.

    `dlq consume` sends them. Their ids stay, so that a receiver that has taken one knows it. Who, when and
    why is kept.

    Exit codes: 1 no such callback (those before it are sent), or not confirmed, 2 wrong usage.

    Example: dlq callbacks --state dead --json | jq -r .id | xargs dlq callbacks retry --yes
    """
    if len(ids) > 1 and not yes:
        click.confirm(f"retry {len(ids)} callbacks?", abort=True, err=True)

    async def run(pool: Pool) -> None:
        for each in ids:
            try:
                await callback_list.retry(pool, each, by=by or getpass.getuser(), note=note)
            except UnknownCallbackError as error:
                fail(str(error))

    with_database(load, run, changes=True)
    if as_json:
        printing.json_line({"retried": len(ids)})
    else:
        click.echo(f"{len(ids)} callback{'' if len(ids) == 1 else 's'} will be sent")


def _row(callback: CallbackRow) -> tuple[object, ...]:
    at = callback.created_at.astimezone(UTC).isoformat(timespec="seconds")
    last = callback.answers[-1] if callback.answers else {}
    return (
        callback.id, at, callback.job_id, callback.job_state, callback.state, callback.tries,
        callback.why_dead or last.get("status") or last.get("error"), shown_url(callback.url),
    )  # fmt: skip
