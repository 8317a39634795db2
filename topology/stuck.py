"""Dead letters that the broker cannot hand on: a fault that only the management API shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from topology.management import Management, segment

# The broker's numbers are up to 5 s old, and older while it has much to do.
STUCK_S = 12.0
LOOK_S = 1.0


class Stuck:
    """What is stuck, from several looks. Dead letters on their way are counted by the broker too: stuck is a
    queue that had some at every look for `STUCK_S` seconds, and never less than before."""

    def __init__(self) -> None:
        self._before: Mapping[str, int] = {}
        self._since: dict[str, float] = {}

    def look(self, counts: Mapping[str, int], now: float) -> dict[str, int]:
        """How many each queue that is stuck has.

        Args:
            counts: of each queue that has dead letters to hand on.
            now: monotonic seconds.
        """
        here = {queue: count for queue, count in counts.items() if count}
        self._since = {
            queue: self._since[queue] if self._before.get(queue, count + 1) <= count else now
            for queue, count in here.items()
        }
        self._before = here
        return {queue: here[queue] for queue, since in self._since.items() if now - since >= STUCK_S}


def stuck_letters(management: Management, vhost: str) -> dict[str, int]:
    """Per queue of the vhost how many dead letters have not reached their dead-letter exchange, where any.

    Those on their way are counted too: see `Stuck`. What is stuck the broker tries again every 3 minutes.
    https://www.rabbitmq.com/docs/quorum-queues#dead-lettering

    Raises:
        ManagementError: no usable answer.
    """
    found = management.get(f"/api/queues/{segment(vhost)}", {"columns": "name,messages_dlx"})
    return {queue["name"]: count for queue in found or [] if (count := queue.get("messages_dlx") or 0)}


def surely_stuck(
    look: Callable[[], Mapping[str, int]], first: tuple[Mapping[str, int], float] | None = None
) -> dict[str, int]:
    """What is stuck, after one look where no queue has dead letters to hand on, else after `STUCK_S` seconds.

    Args:
        look: dead letters to hand on, by queue.
        first: what a look has found already, and when (monotonic seconds).
    """
    stuck = Stuck()
    counts, start = first or (look(), time.monotonic())
    found = stuck.look(counts, start)
    while any(counts.values()) and (now := time.monotonic()) < start + STUCK_S:
        time.sleep(min(LOOK_S, start + STUCK_S - now))
        counts = look()
        found = stuck.look(counts, time.monotonic())
    return found
