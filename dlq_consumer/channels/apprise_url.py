"""One of Apprise's URLs: Slack, PagerDuty, mail and a hundred others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
from urllib.parse import unquote

import apprise

from dlq_consumer.alert_message import TEST, text, title
from dlq_consumer.channels.channel import DeliveryError
from storage.alerts import Alert

_SCHEME = re.compile(r"([a-z0-9.+-]+)://", re.IGNORECASE)
# Pieces of a URL that are long enough to be a secret, and to be told from other words.
_PIECE = re.compile(r"[^/:@?&=,#\s]{4,}")
_LOG = logging.getLogger("apprise")


class AppriseUrl:
    """Sends through Apprise, which blocks, in a thread of its own.

    One at a time: a receiver that hangs for ever holds one thread, which ends with the process, and what
    comes meanwhile fails at once and is tried later.
    """

    takes_resolved = True

    def __init__(self, url: str, number: int, timeout_s: float) -> None:
        """Args:
        number: from 1, its place among the URLs.

        Raises:
            ValueError: Apprise does not understand it. The message quotes no more of it than the scheme.
        """
        scheme = found[1].lower() if (found := _SCHEME.match(url)) else "?"
        self.name = f"apprise-{number}-{scheme}"
        self.longest_s = 2 * timeout_s
        self._url = url
        self._turn = asyncio.Lock()
        self._thread: threading.Thread | None = None
        # With a timeout of its own it sends in a pool, whose threads the interpreter waits for at its end
        # (2.3).
        asset = apprise.AppriseAsset(async_mode=False, service_timeout=0, app_id="Redrive")
        with _Told():  # it logs a URL that it does not understand
            self._apprise = apprise.Apprise(asset=asset)
            known = self._apprise.add(url)
        if not known:
            raise ValueError(f"number {number} ({scheme}://) is no URL that Apprise understands")

    async def send(self, alert: Alert) -> None:
        async with self._turn:
            if self._thread is not None and self._thread.is_alive():
                raise DeliveryError("an earlier delivery still hangs")
            loop = asyncio.get_running_loop()
            done: asyncio.Future[str | None] = loop.create_future()

            def tell(problem: str | None) -> None:
                if not done.done():
                    done.set_result(problem)

            def run() -> None:
                problem = self._notify(alert)
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(tell, problem)

            self._thread = threading.Thread(target=run, name=self.name, daemon=True)
            self._thread.start()
            try:
                async with asyncio.timeout(self.longest_s):
                    problem = await done
            except TimeoutError:
                raise DeliveryError(f"no answer within {self.longest_s:g} s") from None
        if problem is not None:
            raise DeliveryError(problem)

    async def close(self) -> None:
        """Nothing is kept open."""

    def _notify(self, alert: Alert) -> str | None:
        kinds = apprise.NotifyType
        kind = {"resolved": kinds.SUCCESS, TEST: kinds.INFO}.get(alert.kind, kinds.FAILURE)
        with _Told() as told:
            try:
                sent = self._apprise.notify(
                    title=title(alert),
                    body=text(alert),
                    notify_type=kind,
                    body_format=apprise.NotifyFormat.TEXT,
                )
            except Exception as error:  # noqa: BLE001 - a hundred plugins, and it is told
                return self._without_secrets(f"{type(error).__name__}: {error}")
        return (
            None if sent else self._without_secrets("; ".join(told.words) or "Apprise could not deliver it")
        )

    def _without_secrets(self, problem: str) -> str:
        _, _, rest = self._url.partition("://")
        for piece in sorted(set(_PIECE.findall(rest)), key=len, reverse=True):
            for spelled in (piece, unquote(piece)):
                problem = problem.replace(spelled, "…")
        return problem


class _Told(logging.Handler):
    """What Apprise says as a warning or an error in this thread, which nobody else gets to read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words: list[str] = []
        self._of = threading.get_ident()
        self.addFilter(lambda record: record.thread == self._of)

    def emit(self, record: logging.LogRecord) -> None:
        self.words.append(record.getMessage())

    def __enter__(self) -> _Told:
        _LOG.propagate = False
        _LOG.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        _LOG.removeHandler(self)
