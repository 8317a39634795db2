"""The one consuming connection of the process, opened again by whoever needs it next."""

from __future__ import annotations

import asyncio
import logging

from topology.address import AmqpAddress
from topology.connection import BrokerConnection, connect_persistently

log = logging.getLogger(__name__)


class BrokerLink:
    """Publishing has a connection of its own: a broker under alarm stops reading from those that publish."""

    def __init__(self, address: AmqpAddress, name: str) -> None:
        self._address = address
        self._name = name
        self._turn = asyncio.Lock()
        self._connection: BrokerConnection | None = None

    @property
    def vhost(self) -> str:
        return self._address.vhost

    async def connection(self) -> BrokerConnection:
        """An open connection; waits for the broker with back-off, saying so."""
        async with self._turn:
            if self._connection is None or not self._connection.is_open:
                self._connection = await connect_persistently(
                    self._address,
                    self._name,
                    say=lambda text: log.warning(text, extra={"action": "broker_wait"}),
                )
            return self._connection

    def pause(self) -> None:
        """Read nothing more from the broker. A connection that is lost stays so."""
        if self._connection is not None:
            self._connection.pause_reading()

    def resume(self) -> None:
        if self._connection is not None:
            self._connection.resume_reading()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
