"""`topology explain`."""

from __future__ import annotations

import sys

import click

from topology import exits


@click.command("explain")
@click.argument("code", required=False)
def explain_command(code: str | None) -> None:
    """Tell what a finding of `topology lint` means, and what to do. Without CODE: list all."""
    from topology.lint.codes import CATALOGUE
    from topology.lint.explain import UnknownCodeError, page

    if code is None:
        width = max(map(len, CATALOGUE))
        for known in sorted(CATALOGUE.values(), key=lambda known: known.code):
            click.echo(f"{known.code:{width}}  {known.severity:7}  {known.title}")
        return
    try:
        click.echo(page(code).rstrip())
    except UnknownCodeError as error:
        click.echo(f"topology explain: {error}", err=True)
        sys.exit(exits.USAGE)
