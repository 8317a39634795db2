"""`dlq pause`, `dlq resume` and `dlq cancel`"""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable

import click

from dlq_consumer import printing
from dlq_consumer.commands.discarding import AS_JSON, BY, YES
from dlq_consumer.commands.running import Load, fail, with_database
from dlq_consumer.commands.wording import Words
from storage import replay_control, replay_plans
from storage.pool import Pool
from storage.replay_control import ReplayStateError
from storage.replay_plans import Replay
from storage.replays import MAX_NOTE
from topology import exits

REPLAY_ID = click.argument("replay_id", metavar="ID")
NOTE = click.option("--note", type=Words(MAX_NOTE), default="", help="Why. Kept with the replay.")


@click.command()
@REPLAY_ID
@NOTE
@BY
@AS_JSON
@click.pass_obj
def pause(load: Load, replay_id: str, note: str, by: str | None, as_json: bool) -> None:
    """Send no further letter of a replay. What is on its way, two batches at most, still arrives.

    Exit codes: 1 no such replay, 4 it is not running.

    Example: dlq pause 6f0e… --note "the provider is slow"
    """
    _act(load, as_json, lambda pool: replay_control.pause(pool, replay_id, by=_who(by), why=note))


@click.command()
@REPLAY_ID
@NOTE
@BY
@YES
@AS_JSON
@click.pass_obj
def resume(load: Load, replay_id: str, note: str, by: str | None, yes: bool, as_json: bool) -> None:
    """Go on with a replay that an operator, a canary or a breaker has paused.

    A canary that paused it is over then, and its breaker counts from here.

    Exit codes: 1 no such replay, or not confirmed, 4 it is not paused.

    Example: dlq resume 6f0e… --note "fixed in 1.8.2"
    """
    _confirm(load, replay_id, "Send", yes)
    _act(load, as_json, lambda pool: replay_control.resume(pool, replay_id, by=_who(by), why=note))


@click.command()
@REPLAY_ID
@NOTE
@BY
@YES
@AS_JSON
@click.pass_obj
def cancel(load: Load, replay_id: str, note: str, by: str | None, yes: bool, as_json: bool) -> None:
    """End a replay for good: letters not sent yet are open again. What is on its way still arrives.

    Exit codes: 1 no such replay, or not confirmed, 4 it is over already.

    Example: dlq cancel 6f0e… --yes --note "the wrong group"
    """
    _confirm(load, replay_id, "Reopen", yes)
    _act(load, as_json, lambda pool: replay_control.cancel(pool, replay_id, by=_who(by), why=note))


def _who(by: str | None) -> str:
    return by or getpass.getuser()


def _confirm(load: Load, replay_id: str, verb: str, yes: bool) -> None:
    if yes:
        return
    plan = with_database(load, lambda pool: replay_plans.get(pool, replay_id))
    if plan.figures.unsent > 1 and plan.state in ("running", "paused"):
        click.confirm(f"{verb} {plan.figures.unsent} letters?", abort=True, err=True)


def _act(load: Load, as_json: bool, act: Callable[[Pool], Awaitable[Replay]]) -> None:
    async def run(pool: Pool) -> Replay:
        try:
            return await act(pool)
        except ReplayStateError as error:
            fail(str(error), exits.CONFLICT)

    plan = with_database(load, run, changes=True)
    if as_json:
        printing.json_line(plan.as_json())
    else:
        numbers = plan.figures
        click.echo(f"replay {plan.id}: {plan.state}, {numbers.sent} of {numbers.letters} letters sent")
