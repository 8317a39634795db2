"""Waiting for servers by asking them: an AMQP log-in, the management API, a database session."""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import amqp
import httpx

from dev.management import management_client
from dev.servers.contract import ServersFailed, ServerUrls
from dev.waiting import Say

_TIMEOUT = 5.0  # seconds for one question


class NotReady(Exception):
    """The server did not answer as a ready one does; the message says what it did."""


@dataclass(frozen=True)
class Question:
    """`ask` raises NotReady until it is ready. `exited` tells why waiting is in vain; `tail` is its log.

    `advice` is for a server whose log is not ours to read: what to do when it does not answer.
    """

    name: str
    ask: Callable[[], None]
    exited: Callable[[], str | None] = lambda: None
    tail: Callable[[], str] = lambda: ""
    advice: str = ""


def wait_until_ready(questions: Sequence[Question], *, seconds: float, say: Say) -> None:
    """Asks until each has answered. Raises ServersFailed at the deadline, or when a server has exited."""
    started = told = time.monotonic()
    pending = dict.fromkeys(questions, "not asked yet")
    while True:
        for question in list(pending):
            if why := question.exited():
                raise ServersFailed(f"{question.name} {why}.{_more(question)}")
            try:
                question.ask()
            except NotReady as answer:
                pending[question] = str(answer)
            else:
                del pending[question]
        if not pending:
            return
        now = time.monotonic()
        if now - started > seconds:
            question, answer_seen = next(iter(pending.items()))
            seen = f"did not answer within {seconds:.0f} s (last: {answer_seen})"
            raise ServersFailed(f"{question.name} {seen}.{_more(question)}")
        if now - told >= 4:
            told = now
            names = " and ".join(question.name for question in pending)
            say(f"waiting for {names} ({now - started:.0f} s)")
        time.sleep(0.2)


def _more(question: Question) -> str:
    log = question.tail()
    return f"\n{question.advice}" * bool(question.advice) + f" The end of its log:\n{log}" * bool(log)


def ask_amqp(urls: ServerUrls) -> None:
    url = urlsplit(urls.amqp)
    connection = amqp.Connection(
        host=f"{url.hostname}:{url.port or (5671 if url.scheme == 'amqps' else 5672)}",
        userid=unquote(url.username or "guest"),
        password=unquote(url.password or "guest"),
        virtual_host=unquote(url.path[1:]) or "/",
        ssl=url.scheme == "amqps",
        connect_timeout=_TIMEOUT,
        read_timeout=_TIMEOUT,
        write_timeout=_TIMEOUT,
    )
    try:
        connection.connect()
        connection.close()
    except (OSError, amqp.AMQPError) as error:
        connection.collect()
        raise NotReady(f"AMQP: {type(error).__name__}: {error}") from error


def ask_management(urls: ServerUrls) -> None:
    try:
        with management_client(urls.management, timeout_s=_TIMEOUT) as management:
            answer = management.get("/api/overview")
    except httpx.HTTPError as error:
        raise NotReady(f"management API: {type(error).__name__}: {error}") from error
    if answer.status_code != httpx.codes.OK:
        raise NotReady(f"management API: HTTP {answer.status_code}")


def ask_database(urls: ServerUrls) -> None:
    """Opens a session up to the password question, before which a starting or stopping server sends an error.

    The start-up message and its answers: PostgreSQL, "Message Formats" (StartupMessage, AuthenticationOk,
    ErrorResponse). SQLSTATE class 28 (a rule about who may connect) is the answer of a server that is up.
    """
    url = urlsplit(urls.database)
    wanted = {"user": unquote(url.username or "postgres"), "database": unquote(url.path[1:]) or "postgres"}
    body = b"".join(f"{key}\0{value}\0".encode() for key, value in wanted.items()) + b"\0"
    try:
        with socket.create_connection((url.hostname, url.port or 5432), timeout=_TIMEOUT) as connection:
            connection.sendall(struct.pack("!II", len(body) + 8, 196608) + body)
            answer = connection.recv(4096)
    except OSError as error:
        raise NotReady(f"Postgres: {type(error).__name__}: {error}") from error
    if answer[:1] == b"R" or (answer[:1] == b"E" and b"\0C28" in answer):
        return
    fields = [each.decode(errors="replace") for each in answer[5:].split(b"\0")]
    raise NotReady(
        "Postgres: " + next((each[1:] for each in fields if each[:1] == "M"), "closed the connection")
    )
