"""`dlq groups regroup`"""

from __future__ import annotations

import getpass

import click

from dlq_consumer import printing
from dlq_consumer.commands.running import Load, with_database
from dlq_consumer.commands.wording import NAME
from dlq_consumer.regrouping import Regrouped
from dlq_consumer.regrouping import regroup as look_at
from storage import regrouping
from storage.pool import Pool
from storage.regrouping import OldGroup


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Look at every group, not at those of an older rule alone."
)
@click.option("--by", type=NAME, help="Who does it (default: the user running this).")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only tell which letters would go where.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per group.")
@click.pass_obj
def regroup(load: Load, everything: bool, by: str | None, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Group letters that an older rule grouped by the rule of this release, and tell which went where.

    States, notes and snoozes go with the letters, nothing alerts anew, and `dlq group OLD` tells where they
    are. It runs beside `dlq consume`, in batches: interrupted, it is run again. Run it when every consumer is
    of this release. `dlq check` tells whether there is something to do.

    Exit codes: 1 not confirmed, or the database is away, 130 interrupted.

    Example: dlq groups regroup --dry-run
    """

    async def find(pool: Pool) -> list[OldGroup]:
        return await regrouping.old_groups(pool, everything=everything)

    old = with_database(load, find)
    letters = sum(group.letters for group in old)
    if letters > 1 and not (yes or dry_run):
        click.confirm(f"look at {letters} letters of {len(old)} groups?", abort=True, err=True)

    async def run(pool: Pool) -> list[Regrouped]:
        found = []
        for group in old:
            found.append(await look_at(pool, group, by=by or getpass.getuser(), dry_run=dry_run))
            if as_json:
                printing.json_line(found[-1].as_json())
        return found

    found = with_database(load, run, changes=not dry_run)
    if as_json:
        return
    rows = [(each.fingerprint, heir, number) for each in found for heir, number in each.moved.items()]
    if rows:
        printing.table(("FROM", "TO", "LETTERS"), rows)
    moved = sum(number for *_, number in rows)
    click.echo(f"{len(old)} groups, {moved} letters {'would be moved' if dry_run else 'moved'}")
