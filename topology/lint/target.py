"""The RabbitMQ version that a topology is linted for, as facts with names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_VERSION = re.compile(r"\s*v?(\d{1,4})\.(\d{1,4})")


@dataclass(frozen=True, order=True)
class Target:
    """A RabbitMQ version as far as its rules differ; compared by age."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`3.10`, `4.3`, or a broker's full version, `3.10.8`.

        Raises:
            ValueError: not a version, or older than 3.10.
        """
        found = _VERSION.match(text)
        if found is None:
            raise ValueError(f"{text!r} is not a RabbitMQ version; one looks like 4.3")
        target = cls(int(found[1]), int(found[2]))
        if target < cls(3, 10):
            raise ValueError(f"RabbitMQ {target} is older than 3.10, the oldest whose rules are known")
        return target

    @classmethod
    def nearest(cls, version: str | None) -> Self:
        """The supported target whose rules a broker of this version follows: the newest that is not newer.

        Without a version, or with one that cannot be read, the newest; older than 3.10 counts as 3.10.
        """
        found = _VERSION.match(version or "")
        stated = cls(int(found[1]), int(found[2])) if found else cls(NEWEST.major, NEWEST.minor)
        known = [target for target in SUPPORTED if target <= stated] or [SUPPORTED[0]]
        return cls(known[-1].major, known[-1].minor)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def default_delivery_limit(self) -> int | None:
        """Of a quorum queue that sets none: 20 from 4.0, none before."""
        return 20 if self.major >= 4 else None

    @property
    def negative_limit_is_none(self) -> bool:
        """Whether a delivery limit of -1 means none: from 4.0. Before, the first return exceeds it."""
        return self.major >= 4

    @property
    def imports_default_queue_type(self) -> bool:
        """Whether an import gives queues their vhost's default type: 3.10.8 makes them classic, and heeds the
        default only when a client declares."""
        return (self.major, self.minor) >= (3, 13)

    @property
    def empty_type_is_default(self) -> bool:
        """Whether an `x-queue-type` of "" means the default one: from 4.3. Before, it is refused."""
        return (self.major, self.minor) >= (4, 3)

    @property
    def knows_ha_policies(self) -> bool:
        """Whether `ha-*` keys are policy keys: up to 3.13. 4.x refuses them and ignores stored ones."""
        return self.major < 4


SUPPORTED = (Target(3, 10), Target(3, 13), Target(4, 0), Target(4, 3))
NEWEST = SUPPORTED[-1]
