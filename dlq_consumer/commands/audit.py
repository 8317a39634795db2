"""`dlq audit`"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import past
from dlq_consumer.commands.running import Load, with_database
from storage import audit as records
from storage.audit import MAX_PAGE, AuditFilter, Entry
from storage.pool import Pool
from storage.times import TIME_FORMS


@click.command()
@click.option("--by", help="Caller of the API, or user@host of a command.")
@click.option("--operation", help="It begins so: 'POST /replays', 'dlq discard'.")
@click.option("--target", help="Id of a job, letter, replay or group.")
@click.option("--since", callback=past, metavar="TIME", help=f"Then or later: {TIME_FORMS}.")
@click.option("--until", callback=past, metavar="TIME", help="Before.")
@click.option("--submissions/--no-submissions", default=True, help="Accepted jobs too, or not.")
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True)
@click.option("--before", type=click.IntRange(1, 2**63 - 1), metavar="ID", help="Go on where a list ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_obj
def audit(
    load: Load, by: str | None, operation: str | None, target: str | None, since: datetime | None,
    until: datetime | None, submissions: bool, limit: int, before: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Who changed what, and from where, the newest first: calls of the API, and commands.

    STATUS is that of the answer, or a command's exit code; none while it runs, and for good when its process
    ended before it answered.

    Exit codes: 1 the database is away.

    Example: dlq audit --target 17
    """
    wanted = AuditFilter(by, operation, target, since, until, submissions)

    async def read(pool: Pool) -> Sequence[Entry]:
        return await records.newest(pool, wanted, limit=limit + 1, before=before)

    found = with_database(load, read)
    shown = found[:limit]
    if as_json:
        for entry in shown:
            printing.json_line(entry.as_json())
    else:
        heads = ("AT", "BY", "KEY", "FROM", "OPERATION", "STATUS", "TARGETS")
        printing.table(heads, [_row(entry) for entry in shown])
    if len(found) > limit:
        click.echo(f"more: --before {shown[-1].id}", err=True)


def _row(entry: Entry) -> tuple[object, ...]:
    at = entry.at.astimezone(UTC).isoformat(timespec="seconds")
    targets = " ".join(entry.targets[:3]) + (f" … {len(entry.targets)}" if len(entry.targets) > 3 else "")
    return at, entry.by, entry.key_id, entry.came_from, entry.operation, entry.status, targets or None
