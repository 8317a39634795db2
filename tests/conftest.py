"""Fixtures for everyone: real servers, one vhost and one database per test, processes, proxies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.api_alone import running, shared
from tests.support.databases import Database, fresh_database, migrated_template
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.receiver import hook
from tests.support.servers import Servers, acquired_servers
from tests.support.shared import FAILED, PROCESSES, Places
from tests.support.stack import Stack
from tests.support.stubs import sink, third_party
from tests.support.vhosts import Vhost, broker_version, fresh_vhost
from tests.support.work import worker

__all__ = ["hook", "running", "shared", "sink", "third_party", "worker"]  # fixtures, found here by pytest

MARKED_FOLDERS = {"integration": "integration", "chaos": "chaos", "adopt": "integration"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(MARKED_FOLDERS[folder])


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    """The tests' own RabbitMQ and Postgres: `.urls.amqp`, `.urls.management`, `.urls.database` (admin)."""
    yield from acquired_servers(pytestconfig)


@pytest.fixture(scope="session")
def broker_release(servers: Servers) -> tuple[int, int]:
    """(major, minor) of the broker under test."""
    return broker_version(servers.urls.management)


@pytest.fixture(autouse=True)
def _needs_rabbitmq4(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("rabbitmq4"):
        release: tuple[int, int] = request.getfixturevalue("broker_release")
        if release < (4, 0):
            pytest.skip("not run: needs RabbitMQ 4")


@pytest.fixture
def vhost(servers: Servers) -> Iterator[Vhost]:
    """A virtual host of this test alone, empty."""
    with fresh_vhost(servers.urls.amqp, servers.urls.management) as made:
        yield made


@pytest.fixture(scope="session")
def template_database(servers: Servers) -> Iterator[str]:
    with migrated_template(servers.urls.database) as name:
        yield name


@pytest.fixture
def database(servers: Servers, template_database: str) -> Iterator[Database]:
    """A migrated database of this test alone."""
    with fresh_database(servers.urls.database, template_database) as made:
        yield made


@pytest.fixture
def empty_database(servers: Servers) -> Iterator[Database]:
    """A database without any table of ours."""
    with fresh_database(servers.urls.database) as made:
        yield made


@pytest.fixture
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    """Starts real processes of ours; what still runs at the end is killed, logs are shown on failure."""
    made = Processes(tmp_path)
    request.node.stash[PROCESSES] = made
    yield made
    made.close()


@pytest.fixture(scope="session")
def places(servers: Servers, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Places:
    """For modules whose tests share what they run on."""
    return Places(servers, template_database, lambda: tmp_path_factory.mktemp("shared"))


@pytest.fixture
def stack(
    vhost: Vhost, database: Database, processes: Processes, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    """API, worker and dead-letter consumer, none started yet; with fixture `third_party`, they call it."""
    settings = {}
    if "third_party" in request.fixturenames:
        settings["REDRIVE_THIRD_PARTY_URL"] = request.getfixturevalue("third_party").url
    made = Stack(vhost, database, processes, settings)
    yield made
    made.close()


@pytest.fixture
def proxy() -> Iterator[Callable[..., TcpProxy]]:
    """`proxy(url)`: a TCP proxy to the server of `url`; `proxy(url, refusing=True)`: down at first."""
    with ExitStack() as stack:
        yield lambda url, refusing=False: stack.enter_context(TcpProxy(url, refusing=refusing))


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio."""
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    if report.failed and (processes := item.stash.get(PROCESSES, None)):
        for process in processes.started:
            report.sections.append((f"log of {process.name} (exit code {process.exit_code})", process.tail()))
    return report
