"""The process that calls Apprise, for one notification: nothing that it connects to is not judged, and it can
be ended when it hangs.

A line of JSON with what to send comes on standard input, a line `{"problem": …}` goes to standard output, and
before it an empty one, once it has begun.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import apprise

from outbound.reach import Reach
from outbound.socket_guard import SocketGuard

MAX_PROBLEM = 2_000
# Pieces of a URL that are long enough to be a secret, and to be told from other words.
_PIECE = re.compile(r"[^/:@?&=,#\s]{4,}")


def main() -> None:
    """Runs as `python -m`; ends with 0 whatever comes of it."""
    # What a plugin prints is no answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(file=answers, flush=True)
    asked = json.loads(sys.stdin.readline())
    guard = SocketGuard(Reach.allowing(asked["allow"]))
    guard.install()
    problem = notify(asked)
    if problem is not None and guard.refused:
        problem = f"{guard.refused[0]}; REDRIVE_ALERT_ALLOW does not name it"
    print(json.dumps({"problem": problem and problem[:MAX_PROBLEM]}), file=answers, flush=True)


def notify(asked: Mapping[str, Any]) -> str | None:
    """Why it was not delivered, without a secret; None when it was."""
    told: list[str] = []
    log = logging.getLogger("apprise")
    log.propagate = False
    log.addHandler(_Telling(told))
    # With a timeout of its own it sends in a pool, whose threads the interpreter waits for at its end (2.3).
    asset = apprise.AppriseAsset(async_mode=False, service_timeout=0, app_id="Redrive")
    receiver = apprise.Apprise(asset=asset)
    try:
        # `add` takes a text for several URLs where there is a comma, of which only the first was judged.
        plugin = apprise.Apprise.instantiate(asked["url"], asset=asset)
        if plugin is None or not receiver.add(plugin):
            return "Apprise does not understand the URL any more"
        sent = receiver.notify(
            title=asked["title"],
            body=asked["body"],
            notify_type=apprise.NotifyType(asked["type"]),
            body_format=apprise.NotifyFormat.TEXT,
        )
    except Exception as error:  # noqa: BLE001 - a hundred plugins, and it is told
        return without_secrets(f"{type(error).__name__}: {error}", asked["url"])
    return None if sent else without_secrets("; ".join(told) or "Apprise could not deliver it", asked["url"])


def without_secrets(problem: str, url: str) -> str:
    """`problem` without the pieces of `url`."""
    _, _, rest = url.partition("://")
    for piece in sorted(set(_PIECE.findall(rest)), key=len, reverse=True):
        for spelled in (piece, unquote(piece)):
            problem = problem.replace(spelled, "…")
    return problem


class _Telling(logging.Handler):
    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(record.getMessage())


if __name__ == "__main__":
    main()
