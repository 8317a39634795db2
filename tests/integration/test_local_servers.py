"""The session's own servers: a stop and a start in place, as the tests of outages need it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import httpx
import pytest

from dev.errors import DevError
from dev.servers import NotControllable, acquire
from dev.servers.contract import ServersFailed
from dev.servers.readiness import NotReady, Question, ask_amqp, ask_database, ask_management, wait_until_ready
from tests.support.servers import Servers, ServerUrls, purpose

NOWHERE = ServerUrls("amqp://u:p@127.0.0.1:1/", "http://127.0.0.1:1", "postgresql://u:p@127.0.0.1:1/x")


def test_the_servers_answer_and_a_second_session_in_this_clone_is_refused(servers: Servers) -> None:
    for ask in (ask_amqp, ask_management, ask_database):
        ask(servers.urls)
    assert httpx.get(f"{servers.urls.management}/api/whoami", timeout=30).json()["tags"] in (
        ["administrator"],
        "administrator",
    )
    with pytest.raises(DevError, match="`make test` is running already"):
        acquire(purpose(), print)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_database_comes_back_where_it_was(servers: Servers, how: str) -> None:
    if servers.kind == "environment":
        with pytest.raises(NotControllable):
            servers.stop_database()
        return
    (servers.stop_database if how == "stop" else servers.kill_database)()
    with pytest.raises(NotReady):
        ask_database(servers.urls)
    servers.start_database()
    ask_database(servers.urls)


@pytest.mark.parametrize("ask", [ask_amqp, ask_management, ask_database])
def test_a_server_that_is_not_there_is_not_ready(ask: Callable[[ServerUrls], None]) -> None:
    with pytest.raises(NotReady, match="refused"):
        ask(NOWHERE)


def test_wrong_log_ins_are_told_apart_from_silence(servers: Servers) -> None:
    broker = urlsplit(servers.urls.amqp)
    wrong = f"{broker.scheme}://nobody:wrong@{broker.hostname}:{broker.port or 5672}/"
    with pytest.raises(NotReady, match="AccessRefused"):
        ask_amqp(ServerUrls(wrong, NOWHERE.management, NOWHERE.database))


def test_the_wait_ends_with_the_log_of_the_server_that_did_not_answer() -> None:
    def ask() -> None:
        raise NotReady("no answer")

    silent = Question("the broker", ask, tail=lambda: "last line of its log")
    with pytest.raises(ServersFailed, match=r"did not answer within 0 s \(last: no answer\).*\nlast line"):
        wait_until_ready([silent], seconds=0, say=print)
    exited = Question("the broker", ask, exited=lambda: "exited with 1", tail=lambda: "last line of its log")
    with pytest.raises(ServersFailed, match=r"exited with 1.*\nlast line"):
        wait_until_ready([exited], seconds=60, say=print)
