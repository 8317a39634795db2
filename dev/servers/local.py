"""Private RabbitMQ and Postgres processes under .local/<purpose>/, from the machine's packages."""

from pathlib import Path

from dev import apt
from dev.interrupts import uninterrupted
from dev.leftovers import close_run
from dev.ports import free_ports
from dev.runs import TESTS, Run
from dev.servers.contract import Kind, Servers, ServersFailed, ServerUrls
from dev.servers.postgres import LocalDatabase, find_binaries
from dev.servers.rabbitmq import BrokerPorts, LocalBroker, find_server
from dev.servers.readiness import Question, wait_until_ready
from dev.servers.secrets import DATABASE, USER, keep
from dev.waiting import Say

_SECONDS = 120.0  # a broker's first start takes 5 to 15 s on a small machine


class LocalServers(Servers):
    """Starts both at once; `close` ends them."""

    kind: Kind = "local"

    def __init__(self, run: Run, say: Say) -> None:
        self.run = run
        self.say = say
        script, binaries = _installed(say)
        secrets = keep(run.directory)
        amqp, management, distribution, epmd, database = free_ports(5, run.purpose)
        ports = BrokerPorts(amqp, management, distribution, epmd)
        self.broker = LocalBroker(run, secrets, ports, script)
        self.database = LocalDatabase(run, secrets, database, binaries, say)
        broker_login = f"{USER}:{secrets.broker_password}@127.0.0.1"
        # Tests make databases of their own, so theirs is the administrator's.
        name = "postgres" if run.purpose in TESTS else DATABASE
        self.urls = ServerUrls(
            amqp=f"amqp://{broker_login}:{amqp}/%2F",
            management=f"http://{broker_login}:{management}",
            database=f"postgresql://{USER}:{secrets.database_password}@127.0.0.1:{database}/{name}",
        )

    def start(self) -> None:
        self.say("starting a private RabbitMQ and Postgres")
        self.broker.spawn()
        self.database.spawn()
        self._wait(self.broker.question(self.urls), self.database.question(self.urls))
        if self.run.purpose not in TESTS:
            self.database.make_database()

    def stop_broker(self) -> None:
        self.broker.stop()

    def kill_broker(self) -> None:
        self.broker.kill()

    def start_broker(self) -> None:
        self.broker.spawn()
        self._wait(self.broker.question(self.urls))

    def rabbitmqctl(self, *arguments: str, stdin: str = "") -> str:
        return self.broker.rabbitmqctl(*arguments, stdin=stdin)

    def stop_database(self) -> None:
        self.database.stop()

    def kill_database(self) -> None:
        self.database.kill()

    def start_database(self) -> None:
        self.database.spawn()
        self._wait(self.database.question(self.urls))

    def close(self) -> None:
        if self.run.held.closed:
            return
        self.say("stopping RabbitMQ and Postgres")
        with uninterrupted():
            if self.run.purpose == "up":
                self.database.stop()
                self.broker.stop()
            else:  # their data goes now: nothing needs an orderly end, which takes RabbitMQ 6 s
                self.database.kill()
                self.broker.kill()
            self.broker.end_epmd()
            close_run(self.run, self.say)

    def _wait(self, *questions: Question) -> None:
        wait_until_ready(questions, seconds=_SECONDS, say=self.say)


def _installed(say: Say) -> tuple[Path, Path]:
    """The broker's start script and the database's binaries, installed first if missing and allowed."""
    missing = [] if find_server() else ["rabbitmq-server"]
    missing += [] if find_binaries() else ["postgresql"]
    if missing:
        apt.install(missing, "starting private servers", say)
    script, binaries = find_server(), find_binaries()
    if script is None or binaries is None:
        raise ServersFailed(
            f"{' and '.join(missing)} installed, but the servers were not found where they belong."
        )
    return script, binaries
