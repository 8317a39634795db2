"""What the ledger knows of time: when its leases are due, and how far other workers' leases can be trusted.

While Postgres is away nobody can renew. When it is back, each worker renews first, but not all at one moment:
for a while an expired lease does not mean that its worker is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Longer than the longest pause between two tries to connect, one try included.
SETTLE_S = 15.0


class Watch:
    """Deadlines in monotonic seconds.

    Args:
        renew_s, lease_s: seconds, of the worker's settings.
    """

    def __init__(self, renew_s: float, lease_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._renew_s, self._lease_s, self._clock = renew_s, lease_s, clock
        now = clock()
        self.renew_at = now + renew_s
        self._sweep_at = now + lease_s
        self._settled_at = now

    @property
    def doubt_s(self) -> float:
        """Seconds until an expired lease can be believed."""
        return max(self._settled_at - self._clock(), 0.0)

    @property
    def renewal_due(self) -> bool:
        return self._clock() >= self.renew_at

    def renewed(self) -> None:
        self.renew_at = self._clock() + self._renew_s

    @property
    def sweep_due(self) -> bool:
        return self._clock() >= self._sweep_at

    def swept(self) -> None:
        self._sweep_at = self._clock() + self._lease_s

    def back(self) -> None:
        """Postgres was away, and is back."""
        now = self._clock()
        self.renew_at = now  # first of all: our leases may run out
        self._settled_at = now + SETTLE_S
        self._sweep_at = max(self._settled_at, now + self._lease_s)
