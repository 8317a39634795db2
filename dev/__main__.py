"""`python -m dev demo|up|down|check`, as the Makefile calls it.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import sys

import click

from dev.errors import DevError


def say(line: str) -> None:
    click.echo(f"  {line}")


@click.group()
def cli() -> None:
    """The servers and processes of a development run."""


@cli.command()
def demo() -> None:
    """Start everything, run the story, stop everything."""
    from dev.story import main

    sys.exit(main())


@cli.command()
def up() -> None:
    """Start everything and leave it running in the foreground."""
    from dev.up import main

    sys.exit(main())


@cli.command()
@click.option(
    "--everything", is_flag=True, help="Fail when a demo or a test run is alive, as `make clean` must."
)
def down(everything: bool) -> None:
    """End what a crashed run left behind, stop a running `up`, remove the data.

    A running demo or test run is left alone.
    """
    from dev.leftovers import down as end_all

    sys.exit(end_all(say, everything=everything))


@cli.command()
def check() -> None:
    """Show which servers each purpose would use."""
    from dev.check import main

    sys.exit(main(click.echo))


def main() -> None:
    try:
        cli(prog_name="python -m dev", standalone_mode=False)
    except DevError as error:
        click.echo(f"{error}", err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)


if __name__ == "__main__":
    main()
