"""`topology plan`."""

from __future__ import annotations

import json
import sys

import click

from topology import exits
from topology.commands.configured import configured, fail
from topology.errors import TopologyError
from topology.plan.look import plan, seen_at
from topology.plan.text import as_json, lines, summary

NEXT = {exits.CHANGES: "topology apply", exits.CONFLICT: "topology migrate"}


@click.command("plan")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def plan_command(form: str) -> None:
    """What `apply` would change, and where it cannot: have -> want for each argument. Changes nothing.

    Looks through the management API where REDRIVE_MANAGEMENT_URL is set. Without it bindings, policies and
    what is left over are NOT SEEN. Exit 0: nothing to do; 3: `apply` has something to do; 4: a conflict.
    """
    settings, _, entities = configured()
    try:
        found = plan(settings, entities)
    except TopologyError as error:
        fail("plan", error, exits.FAILED)
    if form == "json":
        click.echo(json.dumps(as_json(found), ensure_ascii=False))
    else:
        for line in lines(found):
            click.echo(line)
        click.echo(f"plan: {summary(found)} at {seen_at(settings)}")
        if following := NEXT.get(found.exit_code):
            click.echo(f"Run: {following}", err=True)
    sys.exit(found.exit_code)
