"""`dlq list` and `dlq show`"""

from __future__ import annotations

import json
from typing import Any

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import filter_options
from dlq_consumer.commands.running import Load, with_database
from storage import letters
from storage.letter_filter import LetterFilter
from storage.letter_pages import MAX_PAGE, OTHER_FILTER, Cursor, Page, collect
from storage.letters import Dossier, Letter
from storage.pool import Pool
from topology.letter_view import view_body, view_properties

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
    """Dead letters, the newest first."""

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
        return
    printing.table(HEADS, [cells(letter) for letter in found])
    if page.next is not None:
        click.echo(f"more: --before {page.next}", err=True)


@click.command()
@click.argument("letter_id", type=click.IntRange(min=1), metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def show(load: Load, letter_id: int, as_json: bool) -> None:
    """Everything known about one letter."""

    async def read(pool: Pool) -> Dossier:
        return await letters.dossier(pool, letter_id)

    found = with_database(load, read)
    view = view_properties(found.letter.properties)
    shown = found.as_json(
        headers=view.headers, deaths=view.deaths, properties=view.properties, body=view_body(found.body)
    )
    if as_json:
        printing.json_line(shown)
    else:
        _print(shown)


def cells(letter: Letter) -> tuple[object, ...]:
    """A letter's row under `HEADS`."""
    dead_at = letter.dead_at.isoformat(timespec="seconds") if letter.dead_at else None
    of = letter.duplicate_of
    state = letter.state if of is None else f"{letter.state}, duplicate of {of}"
    return (
        letter.id, letter.queue, letter.reason, state, letter.task, letter.job_id,
        letter.exception_type, dead_at,
    )  # fmt: skip


def _print(shown: dict[str, Any]) -> None:
    names = (
        "id", "queue", "dead_letter_queue", "target", "reason", "detail", "state", "task", "job_id",
        "message_id", "group", "dead_at", "stored_at", "body_size", "body_sha256",
        "possible_duplicate", "duplicate_of", "replay_of", "imported_from",
    )  # fmt: skip
    printing.fields([(name, shown[name]) for name in names if shown[name] is not None])
    if shown["job"]:
        printing.block("job", " ".join(f"{name}={value}" for name, value in shown["job"].items()))
    printing.block(
        "deaths", "\n".join(f"{d['time']}  {d['words']}" for d in shown["deaths"]) or "none on record"
    )
    for attempt in shown["attempts"]:
        printing.block(
            f"attempt {attempt['generation']}.{attempt['attempt']}: {attempt['outcome']}",
            attempt["traceback"] or attempt["message"] or attempt["reason"] or "",
        )
    printing.block("headers", json.dumps(shown["headers"], indent=1))
    kind, value = next(iter(shown["body"].items()))
    printing.block(f"body ({kind})", value if isinstance(value, str) else json.dumps(value, indent=1))
    for item in shown["replays"]:
        printing.block(
            f"replay {item['replay_id']}",
            f"{item['state']} {item['outcome'] or ''} to {item['target']} {item['detail'] or ''}",
        )
    for step in shown["history"]:
        told = {name: value for name, value in step.items() if name not in ("action", "by", "at")}
        printing.block(f"{step['action']} by {step['by']}, {step['at']}", json.dumps(told))
