"""`dlq replay` and `dlq replays`"""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Sequence

import click

from dlq_consumer import printing
from dlq_consumer.commands.discarding import BY, YES
from dlq_consumer.commands.filtering import LETTER_ID, filter_options
from dlq_consumer.commands.following import follow
from dlq_consumer.commands.running import Load, fail, topology_of, with_database
from dlq_consumer.commands.wording import Words
from storage import replay_plans, replays
from storage.letter_filter import LetterFilter
from storage.pool import Pool
from storage.replay_fitness import Choice, Fitness
from storage.replay_plans import MAX_PAGE, Replay, ReplayItem
from storage.replay_selection import Selection, survey, targets
from storage.replays import (
    BREAKER,
    MAX_LETTERS,
    MAX_NOTE,
    MIN_RATE,
    Asked,
    NothingToReplayError,
    ReplayConflictError,
)
from topology import exits, replay_targets
from topology.settings import ReplaySettings, TopologySettings

SHOWN = 100
Items = tuple[Sequence[ReplayItem], int | None]


@click.command()
@click.argument("letter_ids", type=LETTER_ID, nargs=-1, metavar="[ID...]")
@filter_options
@click.option("--limit", type=click.IntRange(1, MAX_LETTERS), help="So many of them: of a filter the oldest.")
@click.option("--dry-run", is_flag=True, help="Tell what would be sent, and change nothing.")
@click.option("--to", metavar="QUEUE", help="Send them to this queue, not to the one in which they died.")
@click.option("--rate", type=float, help="Letters per second.")
@click.option(
    "--canary", type=click.IntRange(1, MAX_LETTERS), metavar="N",
    help="Send N; the rest once these went well. Otherwise it pauses.",
)  # fmt: skip
@click.option(
    "--breaker", type=click.IntRange(0, MAX_LETTERS), show_default=str(BREAKER), metavar="N",
    help="Pause once N of a group died again as before, if more than half did. 0: never.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Also what may have arrived before, or was replayed too often.")
@click.option("--skip-ineligible", is_flag=True, help="Of IDs: leave out what cannot be replayed.")
@YES
@click.option("--wait/--no-wait", default=True, help="Wait for the outcome of every letter (default).")
@click.option(
    "--timeout", "timeout_s", type=float, default=60.0, show_default=True,
    help="Seconds to wait without anything new.",
)  # fmt: skip
@click.option("--note", type=Words(MAX_NOTE), help="Kept with the replay.")
@BY
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def replay(
    load: Load, letter_ids: tuple[int, ...], wanted: LetterFilter, limit: int | None, dry_run: bool,
    to: str | None, rate: float | None, canary: int | None, breaker: int | None, force: bool,
    skip_ineligible: bool, yes: bool, wait: bool, timeout_s: float, note: str | None, by: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Send letters out again, to the queue in which they died: by ID, or all that match a filter.

    Of a filter, letters that cannot be replayed are left out; of IDs, one such refuses them all. What is
    chosen is frozen: a letter that comes later is not sent.

    \b
    dlq replay 17 18
    dlq replay --task orders.place --since 2h --dry-run
    dlq replay --queue payments --canary 5 --rate 20 --note "the provider is back"

    Exit 0 only if every letter was published and, with --wait, every job among them succeeded. Messages that
    are not jobs of ours count when they are published. With --no-wait exit 0 says that the plan was made.

    Exit codes: 1 something did not go well, or not confirmed, 4 another replay of a letter is outstanding.
    """
    if rate is not None and not MIN_RATE <= rate < 1e9:
        raise click.BadParameter(f"it must be {MIN_RATE} or more", param_hint="--rate")
    if to is not None and (wrong := replay_targets.wrong_name(to)):
        raise click.BadParameter(f"it {wrong}", param_hint="--to")
    if bool(letter_ids) is not wanted.is_open:
        raise click.UsageError("name letters by ID or choose them by a filter: one of the two")
    ids = tuple(dict.fromkeys(letter_ids))
    choice: Choice = ids or wanted
    words = "by id" if ids else wanted.words
    fitness = _fitness(load, choice, to, force)
    if dry_run or not ids:
        selection = with_database(load, lambda pool: survey(pool, choice, fitness))
        refused = replays.refuses(choice, selection, skip_unfit=skip_ineligible)
        count = 0 if refused else min(selection.letters, limit or MAX_LETTERS)
        if dry_run and as_json:
            printing.json_line(selection.as_json() | {"to_send": count, "refused": refused})
        elif not as_json:
            _print_selection(selection, count, refused)
        if dry_run:
            return
        if not count:
            fail(f"{wanted.words}: no letter that can be replayed")
        limit = count
    else:
        count = min(len(ids), limit or MAX_LETTERS)
    if (count > 1 or not ids) and not yes:
        click.confirm(f"Send {count} letters again ({printing.plain(words)})?", abort=True, err=True)
    most_deaths = BREAKER if breaker is None else breaker or None
    asked = Asked(
        by or getpass.getuser(), note, rate, canary, most_deaths, limit, skip_unfit=skip_ineligible,
        insists=breaker is not None,
    )  # fmt: skip

    async def run(pool: Pool) -> tuple[Replay, Items]:
        try:
            made = await replays.create(pool, choice, asked, fitness)
        except ReplayConflictError as error:
            fail(str(error), exits.CONFLICT)
        except NothingToReplayError as error:
            fail(f"{words}: {error}")
        done = await follow(pool, made, timeout_s, quiet=as_json) if wait else made
        return done, await replay_plans.items(pool, made.id, limit=MAX_PAGE if as_json else SHOWN)

    done, items = with_database(load, run, changes=True)
    _show(done, items, as_json)
    if wait and not went_well(done):
        sys.exit(exits.FAILED)


@click.command("replays")
@click.argument("replay_id", required=False, metavar="[ID]")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=50,
    show_default=True,
    help="So many of either.",
)
@click.option("--after", metavar="PLACE", help="Go on after this replay, or after this position of one.")
@click.option("--follow", "live", is_flag=True, help="Of one: wait until every letter's outcome is known.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_obj
def list_replays(
    load: Load, replay_id: str | None, limit: int, after: str | None, live: bool, as_json: bool
) -> None:
    """Replays, the newest first; with an ID, one with its letters in the order in which they are sent.

    Exit codes: 1 there is no such replay.

    Example: dlq replays --limit 5
    """
    if replay_id is None:
        if live:
            raise click.UsageError("--follow goes with an ID")
        _print_page(load, limit, after, as_json)
        return
    if after is not None and not (after.isascii() and after.isdigit() and int(after) < 2**31):
        raise click.BadParameter("of one replay it is a position", param_hint="--after")
    position = int(after or 0)

    async def read(pool: Pool) -> tuple[Replay, Items]:
        plan = await replay_plans.get(pool, replay_id)
        if live:
            plan = await follow(pool, plan, float("inf"), quiet=as_json)
        return plan, await replay_plans.items(pool, plan.id, limit=limit, after=position)

    plan, items = with_database(load, read)
    _show(plan, items, as_json)


def went_well(plan: Replay) -> bool:
    """Every letter is sent, and every job among them succeeded."""
    numbers = plan.figures
    return numbers.undecided == numbers.traceless and not numbers.gone_wrong


def _fitness(load: Load, choice: Choice, to: str | None, force: bool) -> Fitness:
    broker = load(TopologySettings)
    settings = load(ReplaySettings)
    topology = topology_of(load)

    async def ask(pool: Pool) -> Fitness:
        queues = [to] if to is not None else await targets(pool, choice)
        found = await asyncio.to_thread(
            replay_targets.look, broker.address, topology, queues, settings, "redrive-dlq-cli",
            watched=broker.watched_here,
        )  # fmt: skip
        if found.not_asked:
            click.echo(f"dlq: whether the queues exist is not checked: {found.not_asked}", err=True)
        return Fitness(
            to, found.refused, found.job_queues, found.largest_body, settings.laps, found.in_vain, force
        )

    return with_database(load, ask)


def _print_page(load: Load, limit: int, after: str | None, as_json: bool) -> None:
    found, more = with_database(load, lambda pool: replay_plans.page(pool, limit=limit, after=after))
    if as_json:
        for plan in found:
            printing.json_line(plan.as_json())
        return
    heads = ("ID", "STATE", "LETTERS", "SENT", "BY", "CREATED", "NOTE")
    rows = [
        (p.id, p.state, p.letters, p.figures.sent, p.requested_by, p.created_at.isoformat(), p.note)
        for p in found
    ]
    printing.table(heads, rows)
    if more:
        click.echo(f"dlq: there are more: --after {more}", err=True)


def _print_selection(selection: Selection, count: int, refused: bool) -> None:
    printing.table(
        ("LETTERS", "TO", "TASK", "REASON"), [(letters, *of) for of, letters in selection.fit.items()]
    )
    click.echo(f"letters to send: {count}")
    for why, letters in selection.left_out.items():
        ids = selection.named[why]
        which = ", ".join([*map(str, ids), *(["…"] if letters > len(ids) else [])])
        click.echo(f"{'refused' if refused else 'left out'}: {letters} ({which}), {printing.plain(why)}")
    if refused:
        click.echo("one that cannot be replayed refuses them all, unless --skip-ineligible")


def _show(plan: Replay, found: Items, as_json: bool) -> None:
    items, more = found
    if as_json:
        printing.json_line(plan.as_json() | {"items": [item.as_json() for item in items], "next": more})
        return
    numbers = plan.figures
    said = [
        ("replay", plan.id), ("state", plan.state), ("by", plan.requested_by), ("note", plan.note),
        ("letters", ", ".join(f"{count} {state}" for state, count in numbers.states.items())),
        ("outcomes", ", ".join(f"{count} {outcome}" for outcome, count in numbers.outcomes.items()) or None),
    ]  # fmt: skip
    said += [
        (event["action"], f"{event['at']} by {event['by']}" + (f": {event['why']}" if event["why"] else ""))
        for event in plan.events or ()
    ]
    said += [("expired since", f"{letters} {fate}") for fate, letters in plan.expired.items()]
    printing.fields(said)
    click.echo()
    heads = ("LETTER", "TO", "JOB", "STATE", "OUTCOME", "NEW LETTER", "DETAIL")
    rows = [(i.letter_id, i.target, i.job_id, i.state, i.outcome, i.next_letter_id, i.detail) for i in items]
    printing.table(heads, rows)
    if more:
        click.echo(f"dlq: there are more letters: dlq replays {plan.id} --after {more}", err=True)
