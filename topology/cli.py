"""The `topology` command."""

from __future__ import annotations

from importlib import import_module

import click

# Subcommand -> `module:attribute`. Imported when asked for: `lint` needs neither pika nor settings,
# which take most of a second to import.
SUBCOMMANDS = {
    "apply": "topology.commands.apply:apply_command",
    "check": "topology.commands.check:check_command",
    "explain": "topology.commands.explain:explain_command",
    "graph": "topology.commands.graph:graph_command",
    "lint": "topology.commands.lint:lint_command",
    "migrate": "topology.commands.migrate:migrate_command",
    "plan": "topology.commands.plan:plan_command",
    "render": "topology.commands.render:render_command",
    "verify": "topology.commands.verify:verify_command",
}


class OnDemand(click.Group):
    """A group that imports the subcommand that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module, _, attribute = SUBCOMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.group(cls=OnDemand, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Redrive's queues and exchanges on RabbitMQ.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 changes needed, 4 conflict that needs a migration.
    """
