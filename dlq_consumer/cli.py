"""The `dlq` command: builds the settings, the rest is in `dlq_consumer.commands`."""

from __future__ import annotations

import sys
from typing import TypeVar

import click
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from dlq_consumer import exits
from dlq_consumer.commands.check import check
from dlq_consumer.commands.consume import consume
from dlq_consumer.commands.letters import list_letters, show
from dlq_consumer.commands.replay import replay, replays

S = TypeVar("S", bound=BaseSettings)


def load(kind: type[S]) -> S:
    """Settings of one kind, or exit 2 naming the variables that are wrong."""
    try:
        return kind()
    except ValidationError as error:
        prefix = kind.model_config.get("env_prefix", "")
        for problem in error.errors():
            name = prefix + "_".join(str(part) for part in problem["loc"]).upper()
            click.echo(f"{name}: {problem['msg']}" if problem["loc"] else problem["msg"], err=True)
        sys.exit(exits.USAGE)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Dead letters: drain them, look at them, send them out again.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 4 conflict with another replay, 130 interrupted.
    """
    context.obj = load


for command in (consume, list_letters, show, replay, replays, check):
    main.add_command(command)


if __name__ == "__main__":
    main()
