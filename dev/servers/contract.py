"""What the demo and the tests see of a RabbitMQ and a Postgres, wherever they come from."""

from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

from dev.errors import DevError
from dev.runs import Run

Kind = Literal["environment", "docker", "local"]


class NotControllable(DevError):
    """The servers were named in the environment: they are not ours to stop or start."""


class ServersFailed(DevError):
    """A server could not be started or did not answer in time; the message ends with its log."""


@dataclass(frozen=True)
class ServerUrls:
    """`amqp://user:pw@host:port/vhost`, `http://user:pw@host:port`, `postgresql://user:pw@host:port/database`."""

    amqp: str
    management: str
    database: str


class Servers(Protocol):
    """A broker and a database that answer. As a context manager it closes itself.

    After a stop or a kill, start brings a server back on the same port with its data. The start methods
    return once it answers and raise ServersFailed when it does not. `run` is the run that owns whatever is
    started next to the servers (`dev.processes.spawn(servers.run, …)`).
    """

    run: Run
    kind: Kind
    urls: ServerUrls

    def stop_broker(self) -> None: ...
    def start_broker(self) -> None: ...
    def kill_broker(self) -> None:
        """SIGKILL."""

    def rabbitmqctl(self, *arguments: str, stdin: str = "") -> str:
        """The broker's own command; its output. Raises ServersFailed where it fails."""
        ...

    def stop_database(self) -> None: ...
    def start_database(self) -> None: ...
    def kill_database(self) -> None:
        """SIGKILL, to the server and each of its backends."""

    def close(self) -> None:
        """Stops and removes what was started for this run, and nothing else. Safe to call twice.

        The data of purpose `up` stays for the next `make up`; `make down` removes it.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
