"""Sends callbacks, each at least once: one taken just before a crash comes again, with the same id."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from dlq_consumer.callbacks.message import MAX_RESULT, body
from dlq_consumer.callbacks.places import AT_ONCE, PER_PLACE, Places
from dlq_consumer.callbacks.schedule import is_deaf, pause_s, retry_in_s, why_dead
from dlq_consumer.waiting import event_or_timeout
from outbound.destination import BadUrlError, Destination
from outbound.poster import Answer, NoAnswerError, Poster
from outbound.reach import RefusedError
from outbound.settings import CallbackSettings
from outbound.signature import DELIVERY_HEADER, SIGNATURE_HEADER, sign
from storage import callbacks
from storage.callbacks import Callback, Limits
from storage.pool import Pool

log = logging.getLogger(__name__)
POLL_S = 1.0
LEASE_MARGIN_S = 5.0
# Within what the process takes to stop.
LAST_S = 3.0


class CallbackSender:
    """Several may run: each takes what no other has."""

    def __init__(self, pool: Pool, settings: CallbackSettings, stopping: asyncio.Event) -> None:
        self._pool = pool
        self._stopping = stopping
        self._settings = settings
        self._secrets = settings.secrets
        self._places = Places()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Until it stops: what is on its way then has `LAST_S` to end. Raises DatabaseAwayError."""
        sending: set[asyncio.Task[None]] = set()
        poster = Poster(self._settings.reach, self._settings.timeout_s)
        lease_s = poster.longest_s + LEASE_MARGIN_S
        try:
            while not self._stopping.is_set():
                self._ended.clear()
                for task in [task for task in sending if task.done()]:
                    sending.discard(task)
                    task.result()
                due: list[Callback] = []
                look_s = 0.0
                if room := AT_ONCE - len(sending):
                    known = self._places.rooms(_mixed)
                    limits = Limits(
                        room, self._places.doubtful, PER_PLACE, known, MAX_RESULT,
                        busy=self._places.callers, newest_first=_either(),
                    )  # fmt: skip
                    began = time.monotonic()
                    due = await callbacks.claim_due(self._pool, limits, lease_s=lease_s)
                    look_s = time.monotonic() - began
                for callback in due:
                    self._places.begin(callback.place, callback.caller)
                    task = asyncio.create_task(self._send(callback, poster))
                    task.add_done_callback(lambda _: self._ended.set())
                    sending.add(task)
                if pause := pause_s(look_s):
                    await event_or_timeout(self._stopping, pause)
                await event_or_timeout(self._ended, POLL_S)
            if sending:
                extra = {"action": "callbacks_stopping", "callbacks": len(sending)}
                log.info("waiting for the callbacks on their way", extra=extra)
                await asyncio.wait(sending, timeout=LAST_S)
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            await poster.close()

    async def _send(self, callback: Callback, poster: Poster) -> None:
        try:
            answer, problem, dead = None, None, None
            began = time.monotonic()
            try:
                answer = await self._post(callback, poster)
            except RefusedError as error:
                problem, dead = _refused(callback, error)
            except BadUrlError as error:
                problem = dead = f"may not be called: {error}"
            except NoAnswerError as error:
                problem = str(error)
            except Exception as error:  # a defect is this callback's: it ends neither others nor the drain
                problem = f"{type(error).__name__}: {error}"
                log.exception(
                    "callback not sent", extra={"action": "callback_defect", "callback": callback.id}
                )
            if answer is not None or not dead:
                deaf, took_s = not dead and is_deaf(answer), time.monotonic() - began
                self._places.heard(callback.place, deaf=deaf, took_s=took_s)
            await self._record(callback, answer, problem, dead)
        finally:
            self._places.end(callback.place, callback.caller)

    async def _post(self, callback: Callback, poster: Poster) -> Answer:
        now = time.time()
        text = body(callback, datetime.fromtimestamp(now, UTC))
        headers = {
            "content-type": "application/json",
            "user-agent": "redrive",
            SIGNATURE_HEADER: sign(self._secrets, text, at=int(now)),
            DELIVERY_HEADER: callback.id,
        }
        return await poster.post(Destination.parse(callback.url), text, headers)

    async def _record(
        self, callback: Callback, answer: Answer | None, problem: str | None, dead: str | None
    ) -> None:
        extra: dict[str, object] = {
            "action": "callback_delivered", "callback": callback.id, "job_id": callback.job_id,
            "place": callback.place, "tries": callback.tries,
        }  # fmt: skip
        if answer is not None and answer.is_taken:
            await callbacks.delivered(self._pool, callback, answer.status)
            log.info("callback delivered", extra=extra)
            return
        dead = dead or why_dead(callback.tries, answer)
        wait_s = retry_in_s(
            callback.tries,
            random.random(),  # noqa: S311 - spreads tries, keeps no secret
            answer.retry_after if answer else None,
        )
        status = None if answer is None else answer.status
        await callbacks.failed(
            self._pool, callback, status=status, error=problem, retry_in_s=wait_s, dead=dead
        )
        log.log(
            logging.ERROR if dead else logging.WARNING,
            "callback not delivered: %s",
            problem or f"the receiver answered {status}",
            extra=extra | {"action": "callback_dead" if dead else "callback_failed", "retry_in_s": wait_s},
        )


def _refused(callback: Callback, error: RefusedError) -> tuple[str, str | None]:
    """What is told, and why it is dead, if it is: a name may lead elsewhere the next time. To which address
    it leads is the operator's to know: whoever submits could look up inner names else."""
    if Destination.parse(callback.url).address is not None:
        told = f"may not be called: {error}"
        return told, told
    extra = {"action": "callback_refused", "callback": callback.id, "place": callback.place}
    log.warning("callback refused: %s", error, extra=extra)
    return "may not be called: its host's name leads to an address that is not allowed", None


def _either() -> bool:
    return random.random() < 0.5  # noqa: S311 - gives old and new ones their turns, keeps no secret


def _mixed(places: Sequence[str]) -> Sequence[str]:
    return random.sample(places, len(places))
