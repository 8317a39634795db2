"""A vhost and a database of this run alone, in servers that somebody else runs: made first, removed at last.

Their names are the same for each run of one clone, so that a run clears away what a crashed one left.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote, unquote, urlsplit

import httpx

from dev.errors import DevError
from dev.interrupts import uninterrupted
from dev.management import management_client
from dev.runs import ROOT, Purpose
from dev.servers import ServerUrls
from dev.waiting import NotYet, Say, wait_for
from storage.databases import NotAllowedError, create_database, drop_database, with_database
from storage.errors import StorageError

_SECONDS = 60.0


class RightMissing(DevError):
    """A log-in that the environment names may not do what a run of its own needs; the message says what."""


def name_for(purpose: Purpose) -> str:
    """The vhost's and the database's name: of this purpose in this clone on this machine."""
    place = f"{socket.gethostname()}:{ROOT}"
    return f"redrive-{purpose}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


@contextmanager
def borrowed(urls: ServerUrls, purpose: Purpose, say: Say) -> Iterator[ServerUrls]:
    """The same servers, with an empty vhost and an empty database of this run.

    Raises RightMissing when the log-ins may not make them.
    """
    name = name_for(purpose)
    with management_client(urls.management, timeout_s=30) as management:
        try:
            _remove(management, urls, name, say)
            say(f"making the vhost and the database {name} in the servers that the environment names")
            _make_vhost(management, urls, name, say)
            asyncio.run(_make_database(urls.database, name))
            yield ServerUrls(
                urlsplit(urls.amqp)._replace(path=f"/{quote(name, safe='')}").geturl(),
                urls.management,
                with_database(urls.database, name),
            )
        finally:
            with uninterrupted():
                _remove(management, urls, name, say)


def _make_vhost(management: httpx.Client, urls: ServerUrls, name: str, say: Say) -> None:
    who = unquote(urlsplit(urls.management).username or "guest")
    _allowed(management.put(f"/api/vhosts/{name}"), who, "create the vhost")
    for user in {unquote(urlsplit(urls.amqp).username or "guest"), who}:
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        answer = management.put(f"/api/permissions/{name}/{quote(user, safe='')}", json=rights)
        _allowed(answer, who, f"give {user} rights in the vhost")

    def running() -> None:
        state = management.get(f"/api/vhosts/{name}").raise_for_status().json().get("cluster_state", {})
        if set(state.values()) != {"running"}:
            raise NotYet(f"its state is {state}")

    wait_for(f"the vhost {name}", running, seconds=_SECONDS, say=say)


async def _make_database(url: str, name: str) -> None:
    try:
        await create_database(url, name)
    except NotAllowedError as error:
        raise RightMissing(f"REDRIVE_DATABASE_URL: {error}") from error


def _allowed(answer: httpx.Response, who: str, deed: str) -> None:
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise RightMissing(
            f"REDRIVE_MANAGEMENT_URL: {who} may not {deed} (HTTP {answer.status_code}); "
            f"it needs the tag administrator: rabbitmqctl set_user_tags {who} administrator"
        )
    if answer.is_error:
        said = f"HTTP {answer.status_code} when asked to {deed}: {answer.text[:200]}"
        raise DevError(f"REDRIVE_MANAGEMENT_URL: {said}")


def _remove(management: httpx.Client, urls: ServerUrls, name: str, say: Say) -> None:
    """Removes both if they are there; one that cannot be removed is named and left to the next run."""

    def vhost_gone() -> None:
        status = management.delete(f"/api/vhosts/{name}").status_code
        # A broker busy with many quorum queues may answer 500 to the first try.
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise NotYet(f"HTTP {status}")

    attempts: tuple[tuple[str, Callable[[], None]], ...] = (
        ("vhost", lambda: wait_for(f"the removal of vhost {name}", vhost_gone, seconds=_SECONDS, say=say)),
        ("database", lambda: asyncio.run(drop_database(urls.database, name))),
    )
    for thing, remove in attempts:
        try:
            remove()
        except (httpx.HTTPError, StorageError, DevError) as error:
            say(f"the {thing} {name} could not be removed: {error}")
