"""`topology graph`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from topology import exits
from topology.commands.configured import compiled
from topology.commands.output import output_option, write
from topology.errors import UnknownQueueError
from topology.graph.dot import dot
from topology.graph.mermaid import mermaid
from topology.graph.model import graph_of, only
from topology.graph.svg import svg


@click.command("graph")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "svg"]),
    default="mermaid",
    show_default=True,
    help="SVG needs no other program; in the others a ladder is one node unless one queue is drawn.",
)
@click.option("--queue", help="Only this work queue, with what hangs on it.")
@output_option
def graph_command(form: str, queue: str | None, output: Path | None) -> None:
    """Draw the topology: work queues, retry ladders, dead letters and the catch-all. Needs no broker."""
    topology, entities = compiled()
    graph = graph_of(entities)
    if queue is not None:
        try:
            graph = only(graph, topology.queue(queue).name)
        except UnknownQueueError as error:
            click.echo(f"topology graph: {error}", err=True)
            sys.exit(exits.USAGE)
    whole = queue is None and len(graph.families) > 1
    if form == "svg":
        text = svg(graph, queue or ", ".join(each.name for each in topology.queues))
    else:
        text = (mermaid if form == "mermaid" else dot)(graph, whole=whole)
    write("graph", text, output)
