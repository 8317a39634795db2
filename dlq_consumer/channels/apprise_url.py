"""One of Apprise's URLs: Slack, PagerDuty, mail and a hundred others."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import apprise
from apprise.utils.parse import parse_urls

from dlq_consumer.alert_message import TEST, text, title
from dlq_consumer.channels.channel import DeliveryError
from outbound.addresses import read_address
from outbound.reach import Reach, RefusedError
from storage.alerts import Alert

_parse_urls: Callable[[str], list[str]] = parse_urls
_SCHEME = re.compile(r"([a-z0-9.+-]+)://", re.IGNORECASE)
_LOG = logging.getLogger("apprise")
_KINDS = {"resolved": "success", TEST: "info"}
# `-P`: nothing in the working directory takes the place of a module.
_COMMAND = (sys.executable, "-P", "-m", "dlq_consumer.channels.apprise_process")
# They notify the machine that they run on, by a library in C or a program: past the guard on sockets.
LOCAL = frozenset({"dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows"})
# Seconds for the process to begin.
START_S = 30.0


class AppriseUrl:
    """Sends through Apprise, each alert in a process of its own, one at a time.

    Apprise opens its connections by itself: there each is judged, and what hangs is ended.
    """

    takes_resolved = True

    def __init__(self, url: str, number: int, timeout_s: float, reach: Reach) -> None:
        """Args:
        number: from 1, its place among the URLs.
        timeout_s: it has twice this for all, once it has begun.

        Raises:
            ValueError: Apprise does not understand it, it is one of `LOCAL` or several, or it names an
                address that it may not. The message quotes no more of it than the scheme and that address.
        """
        scheme = found[1].lower() if (found := _SCHEME.match(url)) else "?"
        self.name = f"apprise-{number}-{scheme}"
        self._answer_s = 2 * timeout_s
        self.longest_s = START_S + self._answer_s
        self._url = url
        self._allow = [*map(str, reach.networks), *reach.hosts]
        self._turn = asyncio.Lock()
        told = f"number {number} ({scheme}://)"
        if scheme in LOCAL:
            raise ValueError(
                f"{told} notifies the machine that it runs on, which nothing here can judge; a log server is"
                " reached by rsyslog://, where REDRIVE_ALERT_ALLOW names its address"
            )
        if len(_parse_urls(url)) > 1:  # as Apprise's `add` does, which would send to all of them
            raise ValueError(f"{told} is several URLs: separate them by spaces")
        if (hosts := _hosts(url)) is None:
            raise ValueError(f"{told} is no URL that Apprise understands")
        for host in hosts:
            name = host.strip("[]").lower().removesuffix(".")
            try:
                reach.check_host(name, read_address(name))
            except RefusedError as error:
                allow = "what is not public must be allowed by REDRIVE_ALERT_ALLOW"
                raise ValueError(f"{told}: {error}; {allow}") from None

    async def send(self, alert: Alert) -> None:
        async with self._turn:
            try:
                process = await asyncio.create_subprocess_exec(
                    *_COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
                )
            except OSError as error:
                raise DeliveryError(f"its process could not be started: {error}") from None
            try:
                problem = await self._answer(process, alert)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if problem is not None:
            raise DeliveryError(problem)

    async def close(self) -> None:
        """Nothing is kept open."""

    async def _answer(self, process: Process, alert: Alert) -> str | None:
        assert process.stdin
        assert process.stdout
        asked = {
            "url": self._url,
            "allow": self._allow,
            "title": title(alert),
            "body": text(alert),
            "type": _KINDS.get(alert.kind, "failure"),
        }
        try:
            async with asyncio.timeout(START_S):
                await process.stdout.readline()
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            async with asyncio.timeout(self._answer_s):
                line = await process.stdout.readline()
        except TimeoutError:
            return f"no answer within {self._answer_s:g} s"
        if not line.endswith(b"\n"):
            return f"its process ended with {await process.wait()} before it answered"
        answer: dict[str, str | None] = json.loads(line)
        return answer["problem"]


def _hosts(url: str) -> list[str] | None:
    """Hosts that the URL names; of a service with a place of its own none. None: it is no such URL."""
    _LOG.addHandler(quiet := logging.NullHandler())
    _LOG.propagate, told = False, _LOG.propagate  # it logs a URL that it does not understand
    try:
        plugin: Any = apprise.Apprise.instantiate(url, suppress_exceptions=True)
    finally:
        _LOG.propagate = told
        _LOG.removeHandler(quiet)
    if plugin is None:
        return None
    own = [plugin.host] if any("{host}" in template for template in plugin.templates) else []
    return [host for host in (*own, getattr(plugin, "smtp_host", None)) if host]
