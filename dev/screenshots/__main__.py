"""`python -m dev.screenshots [DIRECTORY]`: the pictures of docs/management-ui.md, taken anew."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from dev.borrowed import borrowed
from dev.errors import DevError
from dev.runs import ROOT
from dev.screenshots.browser import browser
from dev.screenshots.pages import PICTURES, take
from dev.screenshots.scene import scene
from dev.servers import Servers, acquire
from topology.address import AmqpAddress


@contextmanager
def _vhost(servers: Servers) -> Iterator[AmqpAddress]:
    """An empty vhost: servers that were started for this run have one already."""
    if servers.kind != "environment":
        yield AmqpAddress.parse(servers.urls.amqp)
        return
    with borrowed(servers.urls, "demo", click.echo) as urls:
        yield AmqpAddress.parse(urls.amqp)


@click.command()
@click.argument(
    "directory", type=click.Path(path_type=Path), default=ROOT / "docs" / "images" / "management-ui"
)
def main(directory: Path) -> None:
    """Set a scene in a vhost, and take a picture of each page. Needs chromium and chromium-driver."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory() as profile,
            browser(Path(profile)) as page,
            acquire("demo", click.echo) as servers,
            _vhost(servers) as address,
            scene(address, servers.urls.management, click.echo),
        ):
            for name, picture in take(page, servers.urls.management, address.vhost):
                (directory / f"{name}.png").write_bytes(picture)
                click.echo(f"{name}.png: {len(picture) // 1024} KiB")
    except DevError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(f"{len(PICTURES)} pictures in {directory}")


main()
