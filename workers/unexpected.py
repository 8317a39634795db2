"""What comes out of the event loop and is no lost connection.

Celery would end the worker there, and the message that brought it about would end the next one. Here it is
taken for a lost connection: the worker connects again, as slowly as after any other loss (`workers.pacing`).
The message counts a delivery each time, until the broker's delivery limit dead-letters it. What comes more
often than that is no message's fault: the worker ends, for its supervisor to start it anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from celery.exceptions import WorkerLostError, WorkerShutdown

from topology import exits
from topology.spec import Topology

logger = logging.getLogger(__name__)
# A loop that held for so long had nothing to do with what came before.
CALM_S = 60.0
# With no message settled in between.
FEWEST = 10


class UnexpectedError(OSError):
    """Raised in place of what came out of the event loop. An OSError: Celery connects again after one."""


def recurrences(topology: Topology) -> int:
    """How often in a row the loop may fail: a poison reaches its queue's delivery limit sooner."""
    return max((FEWEST, *(queue.delivery_limit + 2 for queue in topology.queues)))


class Containment:
    """Wraps the event loop of one worker process; it may fail `most` times in a row."""

    def __init__(
        self,
        loop: Callable[..., Any],
        expected: tuple[type[BaseException], ...],
        most: int = FEWEST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop, self._expected, self._most, self._clock = loop, expected, most, clock
        self._failures = 0

    def run(self, *args: Any) -> Any:
        """The loop. Pool processes that cannot be started end the worker as ever."""
        return self.contain(self._loop, *args)

    def calm(self) -> None:
        """A message was settled."""
        self._failures = 0

    def contain(self, loop: Callable[..., Any], *args: Any) -> Any:
        """Call `loop`.

        Raises:
            UnexpectedError: it failed, and the worker is to connect again.
            WorkerShutdown: it failed too often in a row.
        """
        began = self._clock()
        try:
            return loop(*args)
        except (*self._expected, WorkerLostError):
            raise
        except Exception as error:
            if self._clock() - began > CALM_S:
                self._failures = 0
            self._failures += 1
            fields = {"action": "loop_failed", "error": type(error).__name__, "failures": self._failures}
            if self._failures >= self._most:
                logger.critical(
                    "the event loop failed %d times in a row and no message was settled in between: "
                    "this worker ends with exit code %d, to be started anew: %r",
                    self._failures, exits.FAILED, error,
                    extra=fields | {"action": "loop_given_up"}, exc_info=error,
                )  # fmt: skip
                raise WorkerShutdown(exits.FAILED) from error
            traceback = error if self._failures == 1 else None
            logger.error(
                "the event loop failed; connecting again: %r", error, extra=fields, exc_info=traceback
            )
            raise UnexpectedError(f"{type(error).__name__}: {error}") from error
