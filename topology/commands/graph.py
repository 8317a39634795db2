"""`topology graph`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

import click

from topology import exits
from topology.commands.configured import compiled
from topology.commands.output import output_option, write
from topology.errors import UnknownQueueError
from topology.graph.picture import Form, picture
from topology.render.description import description


@click.command("graph")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "svg", "json"]),
    default="mermaid",
    show_default=True,
    help="SVG needs no other program; in mermaid and dot a ladder is one node unless one queue is drawn."
    " JSON is the whole for programs.",
)
@click.option("--queue", help="Only this work queue, with what hangs on it.")
@output_option
def graph_command(form: Form | Literal["json"], queue: str | None, output: Path | None) -> None:
    """Draw the topology: work queues, retry ladders, dead letters and the catch-all. Needs no broker."""
    topology, entities = compiled()
    try:
        text = (
            json.dumps(description(topology, entities, queue), indent=2) + "\n"
            if form == "json"
            else picture(topology, entities, form, queue)
        )
    except UnknownQueueError as error:
        click.echo(f"topology graph: {error}", err=True)
        sys.exit(exits.USAGE)
    write("graph", text, output)
