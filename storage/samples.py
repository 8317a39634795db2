"""Business tables of the sample jobs, in the shape that effect transactions and async calls take."""

from __future__ import annotations

from storage.errors import translate
from storage.sync import Database

INSERT_CHARGE = """
INSERT INTO redrive.sample_charges (order_id, amount_cents, currency, reference, job_id)
VALUES ($1, $2, $3, $4, $5)
"""

_BEGIN_EMAIL = """
INSERT INTO redrive.sample_emails (email_key, state, job_id) VALUES ($1, 'sending', $2)
ON CONFLICT (email_key) DO NOTHING
"""
_EMAIL_STATE = "SELECT state FROM redrive.sample_emails WHERE email_key = $1"
_EMAIL_SENT = "UPDATE redrive.sample_emails SET state = 'sent', sent_at = now() WHERE email_key = $1"


def begin_email(database: Database, email_key: str, job_id: str) -> str:
    """Note that a mail is about to be sent; its state now: `sending` or, if it was sent before, `sent`."""
    return database.run(_begin_email(database, email_key, job_id))


def mark_email_sent(database: Database, email_key: str) -> None:
    """The mail has been handed over."""
    database.run(_execute(database, _EMAIL_SENT, email_key))


async def _begin_email(database: Database, email_key: str, job_id: str) -> str:
    connection = await database.acquire()
    try:
        with translate("begin a mail"):
            await connection.execute(_BEGIN_EMAIL, email_key, job_id)
            return str(await connection.fetchval(_EMAIL_STATE, email_key))
    finally:
        await database.release(connection)


async def _execute(database: Database, statement: str, *arguments: object) -> None:
    connection = await database.acquire()
    try:
        with translate("write a sample row"):
            await connection.execute(statement, *arguments)
    finally:
        await database.release(connection)
