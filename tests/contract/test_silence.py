"""What a session of ours has told Postgres about a process that freezes or vanishes, as Postgres says it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, cast

import asyncpg
import pytest
from pydantic import SecretStr

from storage import exports, pool, sessions, silence
from storage.claims import connect_for_claims
from storage.letter_filter import LetterFilter
from storage.settings import StorageSettings
from storage.sync import Database, LoopThread, pausing
from tests.support import letter_rows
from tests.support.databases import Database as FreshDatabase
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio
VANISHED = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_connection_check_interval": "5s",
}
IDLE = "idle_in_transaction_session_timeout"
OPTIONS = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)


def settings_of(url: str) -> StorageSettings:
    return StorageSettings(_env_file=None, database_url=SecretStr(url))  # type: ignore[call-arg]


@pytest.fixture
def settings(database: FreshDatabase) -> StorageSettings:
    return settings_of(database.url)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread("test")
    yield made
    made.stop()


async def shown(connection: Any, *names: str) -> dict[str, str]:
    return {name: await connection.fetchval(f"SHOW {name}") for name in names}


async def check(connection: Any, *, idle: str = "15s", silent: str = "0") -> None:
    assert await shown(connection, *VANISHED) == VANISHED
    assert await shown(connection, IDLE, "idle_session_timeout") == {
        IDLE: idle,
        "idle_session_timeout": silent,
    }


@pytest.mark.parametrize("connect", [pool.connect, pool.connect_to_write, connect_for_claims])
async def test_a_connection(
    settings: StorageSettings,
    connect: Callable[[StorageSettings, str], Coroutine[Any, Any, asyncpg.Connection]],
) -> None:
    connection = await connect(settings, "test")
    await check(connection)
    await connection.close()


@pytest.mark.parametrize("options", [{"stateless": True}, {"by_key": True}, {"lock_timeout_s": 1.0}])
async def test_a_pool_also_when_a_connection_was_given_back(
    settings: StorageSettings, options: dict[str, Any]
) -> None:
    async with await pool.open_pool(settings, "test", **options) as made:
        for _ in range(2):
            async with made.acquire() as connection:
                await check(connection)


async def test_locks_are_lost_in_silence(settings: StorageSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sessions.HEARTBEAT_S * 3 <= silence.SILENT_S, "a breath missed is no silence"
    monkeypatch.setattr(silence, "SILENT_S", 1.0)
    source = sessions.Source("c", "v", "q")
    async with sessions.open_locks(settings, "frozen") as frozen:  # nobody watches
        assert await frozen.take_queue(source, "frozen") is not None
        async with sessions.open_locks(settings, "living") as living:
            watching = asyncio.create_task(living.watch())
            monkeypatch.setattr(sessions, "HEARTBEAT_S", 0.1)
            await eventually_async(lambda: living.take_queue(source, "living"), 30, "it is free")
            await asyncio.wait_for(frozen.lost.wait(), 30)
            watching.cancel()


async def test_what_jobs_borrow_may_pause_as_long_as_they_take(
    settings: StorageSettings, loop: LoopThread
) -> None:
    made = Database(settings, loop, "test", idle_s=960)

    async def borrowed(idle: str) -> None:
        async with made.lend() as connection:
            await check(connection, idle=idle)

    async def all_of_them() -> None:
        await borrowed("16min")
        pausing.set(7200)
        await borrowed("2h")
        pausing.set(1e9)
        await borrowed("2147483647ms")
        pausing.set(30)
        await borrowed("16min")
        await made.close()

    await asyncio.to_thread(loop.run, all_of_them())


@pytest.mark.parametrize(("idle_s", "said"), [(0, "0"), (3600, "1h")])
async def test_an_export_may_wait_for_its_reader(database: FreshDatabase, idle_s: float, said: str) -> None:
    await asyncio.to_thread(letter_rows.prepare, database)
    await asyncio.to_thread(letter_rows.store, database, 1)
    connection = await pool.connect(settings_of(database.url), "test")
    async with aclosing(exports.export(connection, LetterFilter(), idle_s=idle_s)) as found:
        seen = [await connection.fetchval(f"SHOW {IDLE}") async for _ in found]
    assert seen == [said]
    await connection.close()


async def test_what_the_url_says_holds(database: FreshDatabase) -> None:
    url = f"{database.url}?{IDLE}=7s&client_connection_check_interval=0"
    connection = await pool.connect(settings_of(url), "test")
    asked = await shown(connection, IDLE, "client_connection_check_interval", "tcp_keepalives_idle")
    assert list(asked.values()) == ["7s", "0", "30"]
    await connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems lack some of them")
async def test_a_server_that_vanishes_is_noticed_too(settings: StorageSettings) -> None:
    async with await pool.open_pool(settings, "test") as made, made.acquire() as pooled:
        single = await pool.connect(settings, "test")
        for connection in (single, cast(Any, pooled)._con):
            sock = cast(Any, connection)._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            asked = [sock.getsockopt(socket.IPPROTO_TCP, option) for option in OPTIONS]
            assert asked == [30, 10, 3, 60_000]
        await single.close()
