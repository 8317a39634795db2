"""Letters as rows, where a test is about reading them and nothing has to die for them."""

from __future__ import annotations

from tests.support.databases import Database
from topology.wire import properties

PREPARE = (
    "insert into redrive.drain_sessions (cluster, vhost, queue, consumer) values ('c', '/', 'q.dlq', 'test')",
    "insert into redrive.groups (fingerprint, queue, reason) values ('g', 'q', 'exception')",
)
LETTERS = (
    "insert into redrive.dead_letters (session_id, dlq, queue, reason, properties, body, exchange,"
    " routing_key, body_sha256, body_size, identity, has_identity, task, fingerprint, dead_at)"
    " select 1, 'q.dlq', 'q', 'exception', $2, convert_to('body ' || n, 'UTF8'), '', 'q',"
    " sha256(convert_to('body ' || n, 'UTF8')), 6, int8send(n),"
    " true, $3, 'g', now() from generate_series(1::bigint, $1) as n"
)
_ONE = LETTERS.replace("convert_to('body ' || n, 'UTF8')", "$4::bytea").replace(
    " 6,", " octet_length($4::bytea),"
)


def prepare(database: Database) -> None:
    """The session and the group that the letters belong to."""
    for statement in PREPARE:
        database.execute(statement)


def store(database: Database, count: int = 1, *, task: str = "t", header: str = "") -> None:
    """`count` letters in one transaction."""
    database.execute(LETTERS, count, properties(headers={"h": header}).encode(), task)


def store_as(database: Database, raw: bytes, body: bytes) -> None:
    """One letter of these bytes."""
    database.execute(_ONE, 1, raw, "t", body)


def store_large(database: Database, count: int) -> None:
    """`count` letters of 1 MiB each."""
    store(database, count)
    database.execute(
        "update redrive.dead_letters set body = b, body_size = 1048576, body_sha256 = sha256(b),"
        " identity = sha256(identity) from convert_to(repeat('x', 1048576), 'UTF8') as b"
    )
