"""The broker and the database of a test session. `tests/conftest.py` imports the fixture."""

from collections.abc import Iterator

import pytest

from dev.servers import Servers, acquire


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    """One RabbitMQ and one Postgres for the session: vhosts and databases separate the tests.

    A test that stops or kills a server starts it again before it ends.
    """
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n  servers: {line}", end="", flush=True)

    with acquire("test", say) as acquired:
        yield acquired
