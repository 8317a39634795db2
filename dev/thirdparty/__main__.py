"""`python -m dev.thirdparty --port N`; port 0 takes a free one and says which."""

import asyncio

import click

from dev.loopback_http import HOST, run
from dev.thirdparty.server import ThirdParty


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), required=True)
@click.option("--host", default=HOST, show_default=True, help="Where to listen; in a container, 0.0.0.0.")
def main(port: int, host: str) -> None:
    """A third party that can be told to fail. Anyone who reaches it may tell it: keep it on loopback."""
    asyncio.run(run("third party", ThirdParty().handle, port, host))


if __name__ == "__main__":
    main()
