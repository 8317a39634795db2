"""What both kinds of containers share: is Docker usable; a broker and a database known by container id."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from dev.interrupts import uninterrupted
from dev.leftovers import close_run
from dev.runs import TESTS, Purpose, Run
from dev.servers.choice import Docker
from dev.servers.contract import Kind, Servers, ServersFailed, ServerUrls
from dev.servers.readiness import (
    NotReady,
    Question,
    ask_amqp,
    ask_database,
    ask_management,
    wait_until_ready,
)
from dev.servers.secrets import DATABASE, USER, Secrets
from dev.waiting import Say

RABBITMQ_IMAGE = "rabbitmq:4-management"
POSTGRES_IMAGE = "postgres:18"
_SECONDS = 120.0
_STOP_SECONDS = 30
_COMPOSE = (2, 24, 4)  # the first release with the !override tag that replaces published ports


def usable_docker(purpose: Purpose) -> Docker:
    """Whether an engine on this machine answers; `up` and `demo` need Compose as well."""
    if shutil.which("docker") is None:
        return Docker(usable=False, engine=False, problem="there is no docker command")
    version = _ask("info", "--format", "{{.ServerVersion}}")
    if not version:
        return Docker(usable=False, engine=False, problem="no Docker engine answers `docker info`")
    host = _ask("context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
    if host and not host.startswith(("unix:", "npipe:", "fd:")):
        return Docker(usable=False, engine=True, problem=f"its engine is not on this machine ({host})")
    if purpose not in TESTS:
        compose = _ask("compose", "version", "--short")
        numbers = tuple(
            int(part) for part in compose.lstrip("v").split("-")[0].split(".")[:3] if part.isdigit()
        )
        if numbers < _COMPOSE:
            wanted = ".".join(map(str, _COMPOSE))
            return Docker(
                usable=False,
                engine=True,
                problem=f"Compose {wanted} or newer is needed, found {compose or 'none'}",
            )
    return Docker(usable=True, engine=True)


def _ask(*arguments: str) -> str:
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=5)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def docker(*arguments: str, stdin: str = "") -> str:
    """Its output. Raises ServersFailed with Docker's own message."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, input=stdin)
    if done.returncode != 0:
        raise ServersFailed(f"docker {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def have_images(images: Sequence[str], say: Say) -> None:
    """Pulls what is missing, with Docker's own progress on the terminal. Raises ServersFailed."""
    for image in images:
        if _ask("image", "inspect", "--format", "{{.Id}}", image):
            continue
        say(f"pulling {image}")
        if subprocess.run(["docker", "pull", image], stdin=subprocess.DEVNULL).returncode != 0:
            raise ServersFailed(
                f"Docker could not pull {image} (its message is above). "
                "REDRIVE_SERVERS=local uses this machine's packages instead."
            )


@dataclass(frozen=True)
class PublishedPorts:
    """Ports of 127.0.0.1. Fixed, because Docker gives a restarted container other ephemeral ones."""

    amqp: int
    management: int
    database: int


def urls(secrets: Secrets, ports: PublishedPorts, database: str) -> ServerUrls:
    login = f"{USER}:{secrets.broker_password}@127.0.0.1"
    return ServerUrls(
        amqp=f"amqp://{login}:{ports.amqp}/%2F",
        management=f"http://{login}:{ports.management}",
        database=f"postgresql://{USER}:{secrets.database_password}@127.0.0.1:{ports.database}/{database}",
    )


class ContainerServers(Servers):
    """A broker and a database in containers. Subclasses start them and set the two ids."""

    kind: Kind = "docker"

    def __init__(self, run: Run, secrets: Secrets, ports: PublishedPorts, say: Say) -> None:
        self.run = run
        self.secrets = secrets
        self.say = say
        # Tests make databases of their own, so theirs is the administrator's.
        self.urls = urls(secrets, ports, "postgres" if run.purpose in TESTS else DATABASE)
        self.broker = ""
        self.database = ""

    def stop_broker(self) -> None:
        _stop(self.broker, [self.broker, "rabbitmqctl", "-q", "shutdown"])

    def kill_broker(self) -> None:
        docker("kill", self.broker)

    def start_broker(self) -> None:
        docker("start", self.broker)
        self._wait(self._broker_question())

    def rabbitmqctl(self, *arguments: str, stdin: str = "") -> str:
        return docker("exec", "-i", self.broker, "rabbitmqctl", *arguments, stdin=stdin)

    def stop_database(self) -> None:
        _stop(self.database, ["-u", "postgres", self.database, "pg_ctl", "stop", "-m", "fast"])

    def kill_database(self) -> None:
        docker("kill", self.database)

    def start_database(self) -> None:
        docker("start", self.database)
        self._wait(self._database_question())

    def close(self) -> None:
        if self.run.held.closed:
            return
        self.say("stopping RabbitMQ and Postgres")
        with uninterrupted():
            close_run(self.run, self.say)

    def wait(self) -> None:
        self._wait(self._broker_question(), self._database_question())

    def _wait(self, *questions: Question) -> None:
        wait_until_ready(questions, seconds=_SECONDS, say=self.say)

    def _broker_question(self) -> Question:
        def ask() -> None:
            ask_amqp(self.urls)
            ask_management(self.urls)

        return Question("RabbitMQ", ask, lambda: _exited(self.broker), lambda: _log(self.broker))

    def _database_question(self) -> Question:
        def ask() -> None:
            ask_database(self.urls)
            login = ["-h", "127.0.0.1", "-U", USER, "-d", self.urls.database.rpartition("/")[2]]
            password = f"PGPASSWORD={self.secrets.database_password}"
            try:
                docker("exec", "-e", password, self.database, "psql", "-X", "-w", *login, "-c", "SELECT 1")
            except ServersFailed as error:
                raise NotReady(str(error)) from error

        return Question("Postgres", ask, lambda: _exited(self.database), lambda: _log(self.database))


def _stop(container: str, command: Sequence[str]) -> None:
    """An orderly stop, asked of the server itself: an image's first process need not pass a signal on."""
    subprocess.run(["docker", "exec", *command], capture_output=True, stdin=subprocess.DEVNULL)
    docker("stop", "-t", str(_STOP_SECONDS), container)


def _exited(container: str) -> str | None:
    state = docker("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", container)
    return f"container {state}" if state.split()[0] in ("exited", "dead") else None


def _log(container: str) -> str:
    done = subprocess.run(
        ["docker", "logs", "--tail", "20", container],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout
