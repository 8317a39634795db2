"""What the dispatcher knows of a channel."""

from __future__ import annotations

from typing import Protocol

from storage.alerts import Alert


class DeliveryError(Exception):
    """The alert was not taken, or nobody knows. The message holds no secret: it is logged and stored."""


class Channel(Protocol):
    """One receiver."""

    @property
    def name(self) -> str:
        """The same after a restart, and without secrets: deliveries are on record under it."""

    @property
    def takes_resolved(self) -> bool:
        """Whether it also wants to hear that something is well again."""

    @property
    def longest_s(self) -> float:
        """Seconds after which `send` has returned or raised."""

    async def send(self, alert: Alert) -> None:
        """Raises DeliveryError."""

    async def close(self) -> None:
        """Let go of connections."""
