"""Servers that the environment names: used as they are, never stopped."""

import os
from collections.abc import Callable, Mapping
from typing import NoReturn

from dev.leftovers import close_run
from dev.runs import TESTS, Purpose, Run
from dev.servers.choice import prefix_of
from dev.servers.contract import Kind, NotControllable, Servers, ServerUrls
from dev.servers.readiness import Question, ask_amqp, ask_database, ask_management, wait_until_ready
from dev.waiting import Say

_SECONDS = 30.0  # they may have been started a moment ago, beside us


def advice(variable: str, purpose: Purpose, environment: Mapping[str, str]) -> str:
    """Where `variable` comes from and what to do when its server does not answer."""
    if not (environment.get(variable) or "").strip():
        return f"{variable} is set in .env."
    # REDRIVE_KEY stands in no settings: it comes from the file that `make up` writes for shells.
    if purpose in TESTS or "REDRIVE_KEY" not in environment:
        return f"{variable} is set in the environment of this shell."
    return (
        f"{variable} is set in the environment of this shell, as is REDRIVE_KEY: it looks sourced from "
        "`.local/up/env` of a `make up` that has ended.\n"
        'Open a new shell, or in this one (bash): unset "${!REDRIVE_@}"'
    )


class NamedServers(Servers):
    """Nothing here is ours but the run."""

    kind: Kind = "environment"

    def __init__(self, run: Run, urls: ServerUrls, say: Say) -> None:
        self.run = run
        self.urls = urls
        self.say = say

    def start(self) -> None:
        """Raises ServersFailed when one of them does not answer."""
        wait_until_ready(
            [
                self._question("RabbitMQ", "AMQP_URL", ask_amqp),
                self._question("the management API", "MANAGEMENT_URL", ask_management),
                self._question("Postgres", "DATABASE_URL", ask_database),
            ],
            seconds=_SECONDS,
            say=self.say,
        )

    def _question(self, server: str, setting: str, ask: Callable[[ServerUrls], None]) -> Question:
        variable = prefix_of(self.run.purpose) + setting
        return Question(
            f"{server} ({variable})",
            lambda: ask(self.urls),
            advice=advice(variable, self.run.purpose, os.environ),
        )

    def _refuse(self) -> NoReturn:
        raise NotControllable(
            "these servers were named in the environment; they are not ours to stop, start or command"
        )

    def stop_broker(self) -> None:
        self._refuse()

    def start_broker(self) -> None:
        self._refuse()

    def kill_broker(self) -> None:
        self._refuse()

    def rabbitmqctl(self, *arguments: str, stdin: str = "") -> str:
        self._refuse()

    def stop_database(self) -> None:
        self._refuse()

    def start_database(self) -> None:
        self._refuse()

    def kill_database(self) -> None:
        self._refuse()

    def close(self) -> None:
        close_run(self.run, self.say)
