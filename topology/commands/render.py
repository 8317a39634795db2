"""`topology render`: the topology in the form that other tools declare from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from topology.commands.configured import compiled
from topology.commands.output import output_option, write
from topology.entities import Entities
from topology.errors import InvalidTopologyError
from topology.releases import OLDEST, Release, known_policies, parse_release
from topology.render.definitions import definitions_text
from topology.render.operator import manifests, manifests_text


def _release(context: click.Context, parameter: click.Parameter, value: str) -> Release:
    try:
        release = parse_release(value)
    except InvalidTopologyError as error:
        raise click.BadParameter(str(error)) from None
    if release < OLDEST:
        raise click.BadParameter(f"{value} is older than the oldest that is supported, 3.10")
    return release


vhost_option = click.option(
    "--vhost", default="/", show_default=True, help="The virtual host, which has to exist."
)
target_option = click.option(
    "--target",
    callback=_release,
    default="3.10",
    show_default=True,
    help="The oldest RabbitMQ that must take it. What it does not know is left out, with a warning.",
)


@click.group("render")
def render_command() -> None:
    """The topology for those who declare by other means than `topology apply`. Needs no broker."""


@render_command.command("definitions")
@vhost_option
@target_option
@output_option
def definitions_command(vhost: str, target: Release, output: Path | None) -> None:
    """JSON for `rabbitmqctl import_definitions` and for the management UI's upload."""
    write("render definitions", definitions_text(_for(target), vhost), output)


@render_command.command("manifests")
@vhost_option
@click.option("--cluster", required=True, help="Name of the RabbitmqCluster.")
@click.option("--namespace", help="The cluster's, where it is not that of the manifests.")
@target_option
@output_option
def manifests_command(
    vhost: str, cluster: str, namespace: str | None, target: Release, output: Path | None
) -> None:
    """YAML for RabbitMQ's messaging topology operator on Kubernetes: `kubectl apply -f`."""
    made = manifests(_for(target), vhost=vhost, cluster=cluster, namespace=namespace)
    write("render manifests", manifests_text(made), output)


def _for(target: Release) -> Entities:
    entities = compiled().entities
    policies, left_out = known_policies(entities.policies, target)
    for policy, key in left_out:
        release = ".".join(map(str, target))
        click.echo(
            f"left out: {key} of policy {policy}, which RabbitMQ {release} refuses (--target)", err=True
        )
    return replace(entities, policies=policies)
