"""The exceptions of this package."""

from __future__ import annotations

from collections.abc import Sequence


class TopologyError(Exception):
    """Something about the broker or its topology went wrong."""


class WrongSettingsError(TopologyError):
    """Variables are missing or wrong; the text has a line for each, with its name."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


class InvalidTopologyError(TopologyError, ValueError):
    """A topology that must not be declared; the message names the queue and the field."""


class UnknownQueueError(TopologyError, KeyError):
    """No work queue of that name is in the topology."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownJobTypeError(TopologyError, KeyError):
    """No job type of that name is in the catalogue."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConflictError(TopologyError):
    """An entity on the broker has other arguments than the topology says: it needs a migration."""


class MissingError(TopologyError):
    """An entity of the topology is not on the broker."""


class BrokerUnreachableError(TopologyError):
    """No connection to the broker could be opened."""


class AccessRefusedError(TopologyError):
    """The broker does not know the user or the vhost, or the user may not do this there."""


class ManifestError(TopologyError):
    """A Kubernetes object that is no entity of a topology; the message names it."""
