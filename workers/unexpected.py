"""What comes out of the event loop and is no lost connection.

Celery would end the worker there, and the message that brought it about would end the next one. Here it is
taken for a lost connection: the worker connects again, after a pause that grows while nothing else happens.
The message counts a delivery each time, until the broker's delivery limit dead-letters it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from celery.exceptions import WorkerLostError
from celery.worker import state

from topology.backoff import Backoff

logger = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
# A loop that held for so long had nothing to do with what came before.
CALM_S = 60.0


class UnexpectedError(OSError):
    """Raised in place of what came out of the event loop. An OSError: Celery connects again after one."""


class Containment:
    """Wraps the event loop of one worker process."""

    def __init__(
        self,
        loop: Callable[..., Any],
        expected: tuple[type[BaseException], ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop, self._expected, self._clock = loop, expected, clock
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)

    def run(self, *args: Any) -> Any:
        """The loop. Pool processes that cannot be started end the worker as ever."""
        began = self._clock()
        try:
            return self._loop(*args)
        except (*self._expected, WorkerLostError):
            raise
        except Exception as error:
            if self._clock() - began > CALM_S:
                self._backoff.reset()
            fields = {"action": "loop_failed", "error": type(error).__name__}
            logger.exception("the event loop failed; connecting again", extra=fields)
            raise UnexpectedError(f"{type(error).__name__}: {error}") from error

    def pause(self) -> None:
        """Before the next connection. Ends early, by an exception of Celery's, when the worker is to stop."""
        until = self._clock() + self._backoff.next_s()
        while (left := until - self._clock()) > 0:
            state.maybe_shutdown()
            time.sleep(min(left, 0.1))
