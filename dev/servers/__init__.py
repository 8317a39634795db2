"""A RabbitMQ and a Postgres: those the environment names, else in Docker, else private local ones."""

import atexit
import os
from collections.abc import Callable

from dotenv import dotenv_values

from dev.interrupts import interrupt_on_termination
from dev.leftovers import begin, close_run
from dev.runs import PURPOSES, ROOT, TESTS, Purpose
from dev.servers.choice import WrongEnvironment, choose, forced_kind, named_urls
from dev.servers.compose import ComposeServers
from dev.servers.contract import Kind, NotControllable, Servers, ServersFailed, ServerUrls
from dev.servers.docker import usable_docker
from dev.servers.environment import NamedServers
from dev.servers.local import LocalServers
from dev.servers.testcontainers import TestContainers

__all__ = [
    "Kind",
    "NotControllable",
    "ServerUrls",
    "Servers",
    "ServersFailed",
    "WrongEnvironment",
    "acquire",
    "source",
]


def source(purpose: Purpose, say: Callable[[str], None]) -> tuple[Kind, ServerUrls | None]:
    """The kind of servers a run would use now, and the named ones' URLs.

    Raises WrongEnvironment when variables contradict each other or ask for what is not there.
    """
    environment: dict[str, str | None] = {**os.environ}
    if purpose not in TESTS:
        environment = {**dotenv_values(ROOT / ".env"), **environment}
    named, forced = named_urls(purpose, environment), forced_kind(environment)
    docker = usable_docker(purpose)
    kind = choose(purpose, named is not None, forced, docker)
    if kind == "local" and forced is None and docker.engine:
        say(f"Docker is not used: {docker.problem}")
    return kind, named


def acquire(purpose: Purpose, say: Callable[[str], None]) -> Servers:
    """Servers for a run, ready to use. Only one run of a purpose at a time in one clone.

    Raises DevError: AlreadyRunning, WrongEnvironment, PackagesMissing or ServersFailed.
    """
    if purpose not in PURPOSES:
        raise ValueError(f"purpose is {purpose!r}; it may be {', '.join(PURPOSES)}")
    kind, named = source(purpose, say)
    run = begin(purpose, say)
    interrupt_on_termination()
    servers: NamedServers | ComposeServers | TestContainers | LocalServers
    try:
        if kind == "environment":
            assert named is not None
            servers = NamedServers(run, named, say)
        elif kind == "local":
            servers = LocalServers(run, say)
        elif purpose in TESTS:
            servers = TestContainers(run, say)
        else:
            servers = ComposeServers(run, say)
    except BaseException:
        close_run(run, say)
        raise
    try:
        servers.start()
    except BaseException:
        servers.close()
        raise
    owner = os.getpid()
    # For a caller that ends without closing. A fork of this process is not the owner.
    atexit.register(lambda: servers.close() if os.getpid() == owner else None)
    return servers
