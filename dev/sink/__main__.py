"""`python -m dev.sink --port N`; the secret comes from the environment, where `ps` does not show it."""

import asyncio

import click

from dev.loopback_http import run
from dev.sink.server import Sink


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), required=True)
@click.option(
    "--secret", envvar="REDRIVE_ALERT_WEBHOOK_SECRET", required=True, help="What alerts are signed with."
)
def main(port: int, secret: str) -> None:
    """A webhook sink on loopback that checks signatures."""
    asyncio.run(run("webhook sink", Sink(secret).handle, port))


if __name__ == "__main__":
    main()
