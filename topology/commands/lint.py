"""`topology lint`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import click

from topology import exits

if TYPE_CHECKING:
    from topology.lint.report import Report
    from topology.lint.sources import Loaded
    from topology.lint.target import Target

TARGETS = ("3.10", "3.13", "4.0", "4.3")


@click.command("lint")
@click.argument("source", required=False)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help="RabbitMQ version to lint for. Default: the one that the source states, else the newest.",
)
@click.option(
    "--format", "form", type=click.Choice(("text", "json", "sarif")), default="text", show_default=True
)
@click.option("--strict", is_flag=True, help="Exit 1 on warnings, too.")
@click.option("--vhost", help="Lint this virtual host only.")
@click.option("--ignore", multiple=True, metavar="CODE", help="Leave these findings out; repeatable.")
@click.option("--notes", is_flag=True, help="Tell each note (severity info) in full, in text.")
def lint_command(
    source: str | None,
    target: str | None,
    form: str,
    strict: bool,
    vhost: str | None,
    ignore: tuple[str, ...],
    notes: bool,
) -> None:
    """Where can a message be lost, or loop for ever? Sends, declares and changes nothing.

    SOURCE is a definitions file (- is standard input), the URL of a management API
    (http://user:password@host:15672), or module:ATTRIBUTE of a topology in code. Without it, the
    topology that REDRIVE_TOPOLOGY names.

    Exit codes: 0 no errors, 1 errors (or warnings with --strict) or a broker that cannot be read,
    2 wrong usage, or a file that is no definitions file.
    """
    # Imported here: `topology --help` need not wait for the linter.
    from topology.lint.codes import CATALOGUE
    from topology.lint.report import Report, plain
    from topology.lint.run import lint

    ignored = {code.strip().upper() for code in ignore}
    if unknown := sorted(ignored - CATALOGUE.keys()):
        raise click.BadParameter(
            f"no code {', '.join(unknown)}; all: topology explain", param_hint="--ignore"
        )
    gc.disable()  # a short life, and nothing to collect in it: a quarter of the time for many queues
    loaded = _load(source, vhost)
    chosen, reason = _target(target, loaded)
    definitions, left_out = loaded.definitions, tuple[str, ...]()
    if definitions.origin == "code":
        from topology.lint.from_topology import as_applied_to

        definitions, left_out = as_applied_to(definitions, (chosen.major, chosen.minor))
    for sentence in (*loaded.unseen, *left_out):
        click.echo(f"note: {plain(sentence)}", err=True)
    report = Report(
        source=definitions.source,
        target=str(chosen),
        target_reason=reason,
        queues=len(definitions.queues),
        findings=tuple(finding for finding in lint(definitions, chosen) if finding.code not in ignored),
        file=loaded.file,
        places=loaded.places,
    )
    _print(report, form, notes)
    counts = report.counts()
    if counts["error"] or (strict and counts["warning"]):
        sys.exit(exits.FAILED)


def _load(source: str | None, vhost: str | None) -> Loaded:
    from topology.errors import TopologyError
    from topology.lint.document import NotDefinitionsError
    from topology.lint.report import plain
    from topology.lint.sources import WrongSourceError, load

    try:
        return load(source if source is not None else _configured(), vhost)
    except TopologyError as error:
        # An InvalidTopologyError is a ValueError: code that cannot be used.
        usage = isinstance(error, (WrongSourceError, NotDefinitionsError, ValueError))
        click.echo(f"topology lint: {plain(str(error))}", err=True)
        sys.exit(exits.USAGE if usage else exits.FAILED)


def _configured() -> str:
    from topology.commands.configured import named_topology

    return named_topology()


def _target(wanted: str | None, loaded: Loaded) -> tuple[Target, str]:
    from topology.lint.target import Target

    if wanted is not None:
        return Target.parse(wanted), "--target"
    stated = loaded.definitions.rabbitmq_version
    if stated is None:
        return Target.nearest(None), "the newest; --target names another"
    who = "the broker" if loaded.definitions.origin == "broker" else "the file"
    return Target.nearest(stated), f"{who} states {stated}"


def _print(report: Report, form: str, notes: bool) -> None:
    if form == "text":
        from topology.lint.text import as_text

        click.echo(as_text(report, every_note=notes), nl=False)
    elif form == "json":
        from topology.lint.report import as_json_lines

        click.echo(as_json_lines(report), nl=False)
    else:
        from topology.lint.sarif import as_sarif

        click.echo(as_sarif(report), nl=False)
