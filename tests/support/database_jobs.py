"""Tasks whose trouble in a database block is their own, and no outage."""

from __future__ import annotations

from pydantic import BaseModel

from tests.support.worker_jobs import QUEUE
from topology.spec import JobType, Topology
from workers.celery_app import Redrive
from workers.task import RedriveTask

SLOW = "select pg_sleep(20)"
LIMITED = "set local statement_timeout = '100ms'"


class Anything(BaseModel):
    pass


NAMES = (
    "d.timed_out",
    "d.timed_out_async",
    "d.other_server",
    "d.other_server_async",
    "d.greedy",
    "d.greedy_async",
    "d.contended",
    "d.patience",
)
TOPOLOGY = Topology(queues=(QUEUE,), jobs=tuple(JobType(name, QUEUE.name, Anything) for name in NAMES))

app = Redrive("databases")


@app.task(bind=True, name="d.timed_out")
def timed_out(self: RedriveTask) -> None:
    with self.database.transaction() as tx:
        tx.execute(LIMITED)
        tx.fetch(SLOW)


@app.task(bind=True, name="d.timed_out_async")
async def timed_out_async(self: RedriveTask) -> None:
    async with self.pool.acquire() as connection, connection.transaction():
        await connection.execute(LIMITED)
        await connection.fetch(SLOW)


@app.task(bind=True, name="d.other_server")
def other_server(self: RedriveTask) -> None:
    with self.once("other"):
        raise ConnectionRefusedError("another server")


@app.task(bind=True, name="d.other_server_async")
async def other_server_async(self: RedriveTask) -> None:
    async with self.pool.acquire():
        raise TimeoutError("another server")


@app.task(bind=True, name="d.greedy")
def greedy(self: RedriveTask) -> None:
    with self.database.transaction(), self.database.transaction():
        self.database.fetch("select 1")


@app.task(bind=True, name="d.greedy_async")
async def greedy_async(self: RedriveTask) -> None:
    async with self.pool.transaction(), self.pool.acquire():
        await self.pool.fetch("select 1")


@app.task(bind=True, name="d.contended")
def contended(self: RedriveTask, key: str) -> int:
    """Wants a row that somebody may hold, and waits for nobody."""
    with self.once(key) as tx:
        tx.fetch("SELECT 1 FROM redrive.sample_emails WHERE email_key = $1 FOR UPDATE NOWAIT", key)
    return int(self.request.retries)


@app.task(bind=True, name="d.patience")
def patience(self: RedriveTask) -> str:
    """How long Postgres lets its transaction wait for the next statement."""
    with self.once(str(self.request.id)) as tx:
        (row,) = tx.fetch("SHOW idle_in_transaction_session_timeout")
    return str(row[0])
