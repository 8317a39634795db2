"""Servers that the environment names: used as they are, never stopped."""

from typing import NoReturn

from dev.leftovers import close_run
from dev.runs import Run
from dev.servers.contract import Kind, NotControllable, Servers, ServerUrls
from dev.servers.readiness import Question, ask_amqp, ask_database, ask_management, wait_until_ready
from dev.waiting import Say

_SECONDS = 30.0  # they may have been started a moment ago, beside us


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
                Question("the named RabbitMQ", lambda: ask_amqp(self.urls)),
                Question("the named management API", lambda: ask_management(self.urls)),
                Question("the named Postgres", lambda: ask_database(self.urls)),
            ],
            seconds=_SECONDS,
            say=self.say,
        )

    def _refuse(self) -> NoReturn:
        raise NotControllable(
            "these servers were named in the environment; they are not ours to stop or start"
        )

    def stop_broker(self) -> None:
        self._refuse()

    def start_broker(self) -> None:
        self._refuse()

    def kill_broker(self) -> None:
        self._refuse()

    def stop_database(self) -> None:
        self._refuse()

    def start_database(self) -> None:
        self._refuse()

    def kill_database(self) -> None:
        self._refuse()

    def close(self) -> None:
        close_run(self.run, self.say)
