"""What pika alone needs, as fast as it goes: one connection on its fastest adapter, and a stopwatch.

Imports nothing of ours, so that properties are coded and decoded as pika does it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import pika


class PikaAlone(ABC):
    """`seconds` is the time between `_begin` and `_end`, which closes the connection."""

    def __init__(self, url: str) -> None:
        self._begun = self.seconds = 0.0
        self._connection: pika.SelectConnection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._start),
            on_open_error_callback=self._failed,
            on_close_callback=lambda *_: self._connection.ioloop.stop(),
        )

    def run(self) -> None:
        self._connection.ioloop.start()

    @abstractmethod
    def _start(self, channel: Any) -> None:
        """The channel is open."""

    def _begin(self) -> None:
        self._begun = time.perf_counter()

    def _end(self) -> None:
        self.seconds = time.perf_counter() - self._begun
        self._connection.close()

    def _failed(self, _connection: Any, error: Any) -> None:
        raise SystemExit(f"no connection: {error!r}")
