"""`python -m dev check`: which servers each purpose would use, and what crashed runs left behind."""

from collections.abc import Callable

from dev.errors import DevError
from dev.identity import is_running
from dev.runs import PURPOSES, Purpose, directory_of, load_state, lock
from dev.servers import ServerUrls, source
from dev.servers.contract import Kind
from dev.servers.docker import RABBITMQ_IMAGE
from dev.servers.postgres import find_binaries
from dev.servers.rabbitmq import find_server
from dev.servers.readiness import NotReady, ask_amqp, ask_database, ask_management


def main(show: Callable[[str], None]) -> int:
    """One `thing: OK` per line. 1 when something needs doing; its line says what."""
    wrong = 0
    for purpose in PURPOSES:
        for thing, problem in ((f"servers for {purpose}", _servers), (f"runs of {purpose}", _run)):
            try:
                show(f"{thing}: OK ({problem(purpose)})")
            except (DevError, NotReady) as error:
                wrong = 1
                show(f"{thing}: {error}")
    return wrong


def _servers(purpose: Purpose) -> str:
    notes: list[str] = []
    kind, named = source(purpose, notes.append)
    return "; ".join([_describe(kind, named), *notes])


def _describe(kind: Kind, named: ServerUrls | None) -> str:
    if kind == "environment":
        assert named is not None
        for ask in (ask_amqp, ask_management, ask_database):
            ask(named)
        return "named in the environment, all three answer"
    if kind == "docker":
        return f"Docker, {RABBITMQ_IMAGE.partition(':')[0]} and postgres images"
    missing = [
        name for name, found in (("RabbitMQ", find_server()), ("Postgres", find_binaries())) if not found
    ]
    return "private local servers" + (f", {' and '.join(missing)} to be installed" if missing else "")


def _run(purpose: Purpose) -> str:
    held = lock(purpose)
    if held is None:
        owner = load_state(directory_of(purpose)).owner
        return f"running as process {owner.pid}" if owner else "running"
    with held:
        state = load_state(directory_of(purpose))
    if state.owner:  # a run that ended well has taken its name off
        left = [each.name for each in state.processes if is_running(each.identity)]
        names = ", ".join((*left, *state.containers)) or "its data"
        raise DevError(f"one crashed and left {names}: make down")
    return "none"
