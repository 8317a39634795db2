"""The ground the other tests stand on, tried against the real servers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import asyncpg
import httpx
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.support import waiting
from tests.support.databases import fresh_database
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.servers import Servers
from tests.support.vhosts import Vhost, fresh_vhost
from tests.support.waiting import eventually


def test_a_vhost_is_usable_and_gone_afterwards(servers: Servers) -> None:
    with fresh_vhost(servers.urls.amqp, servers.urls.management) as vhost:
        vhost.management.put(f"/api/queues/{vhost.vhost}/q", json={"durable": True}).raise_for_status()
        assert vhost.queue("q") is not None
        assert vhost.queue("other") is None
    assert httpx.get(f"{servers.urls.management}/api/vhosts/{vhost.vhost}", timeout=30).status_code == 404


def test_a_cloned_database_holds_what_its_template_holds_and_is_dropped(servers: Servers) -> None:
    with fresh_database(servers.urls.database) as template:
        template.execute("create table seen as select 1 as one")
        with fresh_database(servers.urls.database, template.name) as clone:
            assert clone.value("select one from seen") == 1
    with fresh_database(servers.urls.database) as look:
        names = [row["datname"] for row in look.fetch("select datname from pg_database")]
        assert not {template.name, clone.name} & set(names)


def test_a_wait_goes_on_though_its_connections_are_cut(
    servers: Servers, vhost: Vhost, proxy: Callable[..., TcpProxy]
) -> None:
    vhost.management.put(f"/api/queues/{vhost.vhost}/q", json={"durable": True}).raise_for_status()
    broker = proxy(vhost.amqp_url)
    seen = replace(vhost, amqp_url=broker.url)
    with fresh_database(servers.urls.database) as database:
        database.execute("create table seen as select 1 as one")
        backends: list[int] = []

        def cut_twice() -> bool:
            backends.append(database.value("select pg_backend_pid()"))
            assert seen.depth("q") == 0
            if len(backends) in (2, 4):
                assert database.cut_connections() == 1
                broker.cut()
            return len(backends) == 5

        eventually(cut_twice, 30, "two cuts are survived")
        assert [backends.index(backend) for backend in backends] == [0, 0, 2, 2, 4]
        assert broker.accepted == 3
        with pytest.raises(asyncpg.UndefinedTableError):
            eventually(lambda: database.value("select one from unseen"))
        with pytest.raises(ChannelClosedByBroker):
            eventually(lambda: seen.depth("q") or seen.depth("nowhere"))


def test_a_proxy_forwards_cuts_refuses_and_resumes(vhost: Vhost, proxy: Callable[..., TcpProxy]) -> None:
    broker = proxy(vhost.management_url)
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        assert client.get("/api/overview").status_code == 200
        broker.cut()
        assert client.get("/api/overview").status_code == 200  # a new connection
        assert broker.accepted == 2
        broker.hold()
        with pytest.raises(httpx.ReadTimeout):
            client.get("/api/overview", timeout=1)
        broker.refuse()
        with pytest.raises(httpx.ConnectError):
            client.get("/api/overview")
        broker.resume()
        assert client.get("/api/overview").status_code == 200


def test_a_proxy_cuts_what_it_holds(vhost: Vhost, proxy: Callable[..., TcpProxy]) -> None:
    broker = proxy(vhost.management_url)
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        assert client.get("/api/overview").status_code == 200
        broker.hold()
        with pytest.raises(httpx.ReadTimeout):
            client.get("/api/overview", timeout=1)  # its bytes wait in the proxy
        broker.cut()
        assert broker.open_connections == 0
        broker.resume()
        assert client.get("/api/overview").status_code == 200


@pytest.mark.anyio
async def test_an_async_test_sees_a_cut_database_connection(
    servers: Servers, proxy: Callable[..., TcpProxy]
) -> None:
    database = proxy(servers.urls.database)
    connection = await asyncpg.connect(database.url)
    assert await connection.fetchval("select 1") == 1
    database.cut()
    with pytest.raises((asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, ConnectionError)):
        await connection.fetchval("select 1")


def test_a_process_that_ends_too_early_is_reported_with_its_log(processes: Processes) -> None:
    process = processes.start("short", [sys.executable, "-c", "print('broken on purpose')"], {})
    with pytest.raises(RuntimeError, match=r"short ended with 0 before(?s:.*)broken on purpose"):
        process.wait_for_log("ready")


def test_a_process_deaf_to_sigterm_fails_the_stop_and_is_killed(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import signal as s; s.signal(s.SIGTERM, s.SIG_IGN); print('ready'); s.pause(); s.pause()"
    process = processes.start("deaf", [sys.executable, "-c", code], {})
    process.wait_for_log("ready")
    monkeypatch.setattr(waiting, "LEAST_S", 0.0)
    with pytest.raises(AssertionError, match="deaf still runs"):
        process.terminate(0.3)
    process.kill_group()
    assert process.exit_code == -9


@pytest.mark.rabbitmq4
def test_marked_tests_run_only_on_rabbitmq_4(broker_release: tuple[int, int]) -> None:
    assert broker_release >= (4, 0)
