"""The `topology` command."""

from __future__ import annotations

import click

from topology.on_demand import OnDemand

# `lint` needs neither pika nor settings, which take most of a second to import.
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


@click.group(cls=OnDemand, subcommands=SUBCOMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Redrive's queues and exchanges on RabbitMQ.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 changes needed, 4 conflict that needs a migration.
    """
