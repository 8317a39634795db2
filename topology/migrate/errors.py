"""The exceptions of a migration."""

from __future__ import annotations

from topology.errors import TopologyError


class MigrationError(TopologyError):
    """It stopped half-way; nothing is lost, and running it again goes on."""


class UnsafeError(TopologyError):
    """It cannot be done without the risk of losing a message; the text says what to do first."""
