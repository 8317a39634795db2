"""Where a subcommand writes a document: to standard output, or to a file."""

from __future__ import annotations

from pathlib import Path

import click

from topology import exits
from topology.commands.configured import fail

output_option = click.option(
    "-o",
    "--output",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to a file instead; - is standard output.",
)


def write(command: str, text: str, output: Path | None) -> None:
    """Ends the process with exit code 1 where the file cannot be written."""
    if output is None or output == Path("-"):
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(command, f"{output}: {error.strerror}", exits.FAILED)
