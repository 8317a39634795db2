"""`topology check`."""

from __future__ import annotations

import sys

import click

from topology import exits
from topology.commands.configured import configured, fail
from topology.commands.plan import NEXT
from topology.errors import TopologyError
from topology.plan.changes import Change
from topology.plan.compare import compare
from topology.plan.look import look, seen_at
from topology.plan.text import difference_text

WORDS = {"create": "MISSING", "set": "MISSING OR DIFFERENT", "conflict": "CONFLICT", "warning": "WARNING"}


@click.command("check")
def check_command() -> None:
    """Whether the broker has what the topology needs, as `plan` sees it.

    One `thing: OK` a line. Exit 3: something is missing; 4: something is another than it should be,
    or a policy of somebody else changes what a queue of the topology does.
    """
    settings, _, entities = configured()
    click.echo(f"topology {settings.topology}: OK ({len(entities.queues)} queues)")
    try:
        have = look(settings, entities)
    except TopologyError as error:
        fail("check", error, exits.FAILED)
    click.echo(f"broker {seen_at(settings)}: OK (RabbitMQ {have.version})")
    found = compare(entities, have)
    harmful = [change for change in found.of("warning") if change.differences]
    for change in found.changes:
        if change.kind in WORDS:
            word = "CHANGES QUEUES OF OURS" if change in harmful else WORDS[change.kind]
            click.echo(_line(change, word), err=True)
    for words in found.not_seen:
        click.echo(f"NOT SEEN {words}")
    if following := NEXT.get(found.exit_code):
        click.echo(f"Run: {following}", err=True)
    if harmful:
        click.echo(f"Narrow the patterns of {', '.join(sorted({each.name for each in harmful}))}", err=True)
    if code := max(found.exit_code, exits.CONFLICT if harmful else exits.DONE):
        sys.exit(code)
    click.echo("entities: OK")


def _line(change: Change, word: str) -> str:
    said = [difference_text(difference) for difference in change.differences]
    said += [change.note] if change.note else []
    more = f" ({'; '.join(said)})" if said else ""
    return f"{change.entity} {change.name}: {word}{more}"
