"""`dlq groups` and `dlq group`"""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from typing import Any

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import REASON, said
from dlq_consumer.commands.regroup import regroup
from dlq_consumer.commands.running import Load, fail, with_database
from dlq_consumer.commands.wording import NAME, Words
from storage import group_list, group_states, letters
from storage.group_list import (
    GROUP_STATES,
    MAX_HOURS,
    MAX_PAGE,
    AmbiguousGroupError,
    CursorError,
    GroupDetails,
    GroupFilter,
    GroupRow,
    GroupState,
    SortKey,
)
from storage.group_states import MAX_NOTE, Decision
from storage.letters import Letter
from storage.pool import Pool
from storage.times import read_span
from topology import exits
from topology.letter_view import view_properties

HEADS = (
    "GROUP", "STATE", "LETTERS", "OPEN", "REPLAYING", "QUEUE", "TASK", "REASON", "EXCEPTION", "AT",
    "LAST SEEN",
)  # fmt: skip


def span(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else datetime.now(UTC) + read_span(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(invoke_without_command=True)
@click.option("--state", type=click.Choice(GROUP_STATES), help="What was decided about it.")
@click.option("--queue", callback=said, help="Work queue in which its letters died.")
@click.option("--task", callback=said, help="Name of the task.")
@REASON
@click.option(
    "--sort", type=click.Choice(["last_seen", "letters"]), default="last_seen", show_default=True,
    help="What is at the top.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--after", metavar="CURSOR", help="Go on where a list ended, as it says.")
@click.pass_context
def groups(
    context: click.Context, state: GroupState | None, queue: str | None, task: str | None,
    reason: str | None, sort: SortKey, limit: int, after: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Letters that died alike: queue, task, reason, exception type, and top frame of your own code.

    LETTERS is how many ever came; OPEN and REPLAYING are of those on record. When more groups follow, the
    last line (on standard error) says with which --after to go on. Without a subcommand they are listed.

    Example: dlq groups --state open --sort letters
    """
    if context.invoked_subcommand is not None:
        return
    wanted = GroupFilter(state, queue, task, reason)

    async def read(pool: Pool) -> list[GroupRow]:
        try:
            return await group_list.page(pool, wanted, sort=sort, limit=limit + 1, cursor=after)
        except CursorError as error:
            fail(f"--after: {error}", exits.USAGE)

    found = with_database(context.obj, read)
    shown = found[:limit]
    if as_json:
        for group in shown:
            printing.json_line(group.as_json())
    else:
        printing.table(HEADS, [_cells(group) for group in shown])
    if len(found) > limit:
        click.echo(f"more: --after {shown[-1].cursor(sort)}", err=True)


groups.add_command(regroup)


@click.command()
@click.argument("fingerprint")
@click.argument(
    "action", required=False, type=click.Choice(["note", "resolve", "ignore", "reopen"]), metavar="[ACTION]"
)
@click.option("--note", "text", type=Words(MAX_NOTE), help="What there is to say, or why it is decided so.")
@click.option("--by", type=NAME, help="Who says so (default: the user running this).")
@click.option("--for", "until", callback=span, metavar="TIME", help="Ignore it for so long: 2h, 3d, 1w.")
@click.option(
    "--hours",
    type=click.IntRange(1, MAX_HOURS),
    default=24,
    show_default=True,
    help="Count letters so far back.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def group(
    load: Load, fingerprint: str, action: str | None, text: str | None, by: str | None,
    until: datetime | None, hours: int, as_json: bool,
) -> None:  # fmt: skip
    """One group: counts, letters by hour, notes, an example. The start of a FINGERPRINT will do.

    \b
    ACTION, with --note, kept with who, when and why:
      note     add a note
      resolve  it is mended: the next letter reopens the group and alerts
      ignore   its letters are counted and never alert; with --for until then
      reopen   undo either
    The letters themselves stay as they are: see dlq replay, dlq list --group.

    Exit codes: 1 no such group, 2 wrong usage, or the start of several fingerprints.

    Example: dlq group 3f9a resolve --note "fixed in 1.8.2"
    """
    if action is None and (text is not None or by is not None or until is not None):
        raise click.UsageError("--note, --by and --for go with an ACTION: note, resolve, ignore or reopen")
    if action is not None and not (text or "").strip():
        raise click.UsageError(f"{action}: say why with --note")
    if until is not None and action != "ignore":
        raise click.UsageError("--for goes with ignore")

    async def run(pool: Pool) -> tuple[GroupDetails, Letter | None]:
        try:
            if action is not None and text is not None:
                await _act(pool, fingerprint, action, by or getpass.getuser(), text, until)
            found = await group_list.details(pool, fingerprint, hours=hours)
        except AmbiguousGroupError as error:
            fail(str(error), exits.USAGE)
        return found, None if found.example is None else await letters.get(pool, found.example)

    found, example = with_database(load, run, changes=action is not None)
    shown = found.as_json(_letter(example))
    if as_json:
        printing.json_line(shown)
    else:
        _print(shown)


async def _act(pool: Pool, fingerprint: str, action: str, by: str, text: str, until: datetime | None) -> None:
    if action == "note":
        await group_states.note(pool, fingerprint, by=by, text=text)
    else:
        decision: Decision = action  # type: ignore[assignment]
        await group_states.decide(pool, fingerprint, decision, by=by, why=text, until=until)


def _letter(letter: Letter | None) -> dict[str, Any] | None:
    if letter is None:
        return None
    view = view_properties(letter.properties)
    return letter.as_json(headers=view.headers, deaths=view.deaths)


def _cells(group: GroupRow) -> tuple[object, ...]:
    return (
        group.fingerprint[:12], group.state, group.letters, group.counts["open"], group.counts["replaying"],
        group.queue, group.task, group.reason, group.exception_type, group.top_frame,
        group.last_seen.isoformat(timespec="seconds"),
    )  # fmt: skip


def _print(shown: dict[str, Any]) -> None:
    names = (
        "fingerprint", "state", "decided_by", "decided_at", "why", "ignored_until", "regressions",
        "regressed_at", "queue", "task", "reason", "exception_type", "top_frame", "letters", "first_seen",
        "last_seen",
    )  # fmt: skip
    pairs = [(name, shown[name]) for name in names if shown[name] is not None]
    pairs += [(name, number) for name, number in shown["counts"].items() if number]
    pairs += [(f"from {queue}", number) for queue, number in shown["dead_letter_queues"].items()]
    if shown["successors"]:
        pairs.append(("now in", ", ".join(shown["successors"])))
    printing.fields(pairs)
    hours = [f"{each['hour'][:16].replace('T', ' ')}  {each['letters']}" for each in shown["hours"]]
    printing.block("letters by hour (UTC)", "\n".join(hours) or "none")
    for note in shown["notes"]:
        printing.block(f"{note['action']} by {note['by']}, {note['at'][:19].replace('T', ' ')}", note["text"])
    if example := shown["example"]:
        attempts = example["attempts"]
        printing.block(
            f"example: letter {example['id']}, {example['state']} (dlq show {example['id']})",
            (attempts[-1]["traceback"] or attempts[-1]["message"] or "")
            if attempts
            else example["detail"] or "",
        )
