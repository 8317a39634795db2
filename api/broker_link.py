"""A connection that never publishes: it tells whether the broker is there, and how deep its queues are.

A memory alarm stops publishing connections; this one goes on answering.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from topology.address import AmqpAddress
from topology.connection import BrokerConnection, connect_persistently

log = logging.getLogger("redrive.api.relay")


class BrokerLink:
    """`connection` is None while the broker is away. `run` looks for it, and calls `on_up` when found."""

    def __init__(self, address: AmqpAddress, name: str, on_up: Callable[[], None]) -> None:
        self._address = address
        self._name = name
        self._on_up = on_up
        self.connection: BrokerConnection | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            connection = await connect_persistently(self._address, self._name, say=log.warning)
            try:
                self.connection = connection
                self._on_up()
                reason = await connection.closed
                log.warning("lost the broker: %s", reason, extra={"action": "broker_lost"})
            finally:
                self.connection = None
                await connection.close()
