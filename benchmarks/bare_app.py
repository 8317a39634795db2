"""The least that takes a job: FastAPI, a pydantic model, one row in Postgres; no key, outbox or broker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
from fastapi import FastAPI
from pydantic import BaseModel

DATABASE = "REDRIVE_BENCH_DATABASE_URL"
TABLE = "CREATE TABLE bare_jobs (id text PRIMARY KEY, type text NOT NULL, key text NOT NULL, payload jsonb)"
INSERT = "INSERT INTO bare_jobs (id, type, key, payload) VALUES ($1, $2, $3, $4)"


class Payload(BaseModel):
    order_id: str
    amount_cents: int
    currency: str


class Job(BaseModel):
    type: str
    payload: Payload
    idempotency_key: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ[DATABASE], min_size=1, max_size=10) as pool:
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/jobs", status_code=202)
async def submit(job: Job) -> dict[str, Any]:
    """Committed when it answers."""
    job_id = str(uuid4())
    async with app.state.pool.acquire() as db:
        await db.execute(INSERT, job_id, job.type, job.idempotency_key, job.payload.model_dump_json())
    return {"id": job_id, "type": job.type, "state": "PENDING"}
