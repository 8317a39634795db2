"""Clients that do not wait for their answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import asyncpg
import httpx

from tests.support import background
from tests.support.databases import Database
from tests.support.stack import Stack
from tests.support.waiting import eventually

READERS = 50


@contextmanager
def locked(database: Database, table: str) -> Iterator[None]:
    """Whoever reads the table waits."""
    connection = background.run(asyncpg.connect(database.url, timeout=10))
    try:
        background.run(connection.execute("begin"))
        background.run(connection.execute(f"lock table {table} in access exclusive mode"))
        yield
    finally:
        background.run(connection.close())


def test_reads_that_clients_give_up_cost_no_connection(stack: Stack) -> None:
    stack.apply_topology()
    process = stack.start_api(REDRIVE_DATABASE_POOL_MIN="1", REDRIVE_DATABASE_POOL_MAX="2")
    payload = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
    job = stack.submit("payments.charge_order", payload, "k")

    def read_in_haste(_: int) -> str:
        try:
            return str(stack.http.get(f"/jobs/{job}", timeout=0.5).status_code)
        except httpx.TimeoutException:
            return "given up"

    def answers() -> set[int]:
        return {stack.http.get(f"/jobs/{job}").status_code for _ in range(10)}

    with locked(stack.database, "redrive.jobs"), ThreadPoolExecutor(READERS) as pool:
        assert set(pool.map(read_in_haste, range(READERS))) == {"given up"}
        assert stack.http.get("/healthz").status_code == 200
    eventually(lambda: answers() == {200}, 30, "reads are answered")
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(lambda _: stack.http.get(f"/jobs/{job}").status_code, range(READERS)))
    assert set(found) == {200}
    assert process.exit_code is None
