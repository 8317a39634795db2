"""pika alone, as fast as it goes: drains a queue with acks of many at once and keeps nothing.

`python -m benchmarks.pika_drain URL QUEUE LETTERS PREFETCH` prints the seconds from the first letter to the
last ack. `SelectConnection` was the fastest of pika's adapters. Imports nothing of ours, so that properties
are decoded as pika does it.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import pika


class Drain:
    """Ends its connection after so many letters."""

    def __init__(self, url: str, queue: str, letters: int, prefetch: int) -> None:
        self._queue = queue
        self._letters = letters
        self._prefetch = prefetch
        self._drained = 0
        self._begun = self.seconds = 0.0
        self._connection: pika.SelectConnection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._start),
            on_open_error_callback=self._failed,
            on_close_callback=lambda *_: self._connection.ioloop.stop(),
        )

    def run(self) -> None:
        self._connection.ioloop.start()

    def _failed(self, _connection: Any, error: Any) -> None:
        raise SystemExit(f"no connection: {error!r}")

    def _start(self, channel: Any) -> None:
        channel.basic_qos(
            prefetch_count=self._prefetch, callback=lambda _: channel.basic_consume(self._queue, self._take)
        )

    def _take(self, channel: Any, method: Any, _properties: object, _body: bytes) -> None:
        self._begun = self._begun or time.perf_counter()
        self._drained += 1
        if self._drained % (self._prefetch // 2) == 0 or self._drained == self._letters:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self._drained == self._letters:
            # Answered after the ack has been taken.
            channel.basic_qos(prefetch_count=1, callback=self._end)

    def _end(self, _frame: Any) -> None:
        self.seconds = time.perf_counter() - self._begun
        self._connection.close()


def main() -> None:
    url, queue, letters, prefetch = sys.argv[1:5]
    drain = Drain(url, queue, int(letters), int(prefetch))
    drain.run()
    print(drain.seconds)


if __name__ == "__main__":
    main()
