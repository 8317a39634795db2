"""pika alone, as fast as it goes: drains a queue with acks of many at once and keeps nothing.

`python -m benchmarks.pika_drain URL QUEUE LETTERS PREFETCH` prints the seconds from the first letter to the
last ack. `SelectConnection` was the fastest of pika's adapters.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.pika_alone import PikaAlone


class Drain(PikaAlone):
    """Ends its connection after so many letters."""

    def __init__(self, url: str, queue: str, letters: int, prefetch: int) -> None:
        self._queue = queue
        self._letters = letters
        self._prefetch = prefetch
        self._drained = 0
        super().__init__(url)

    def _start(self, channel: Any) -> None:
        channel.basic_qos(
            prefetch_count=self._prefetch, callback=lambda _: channel.basic_consume(self._queue, self._take)
        )

    def _take(self, channel: Any, method: Any, _properties: object, _body: bytes) -> None:
        if not self._drained:
            self._begin()
        self._drained += 1
        if self._drained % (self._prefetch // 2) == 0 or self._drained == self._letters:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if self._drained == self._letters:
            # Answered after the ack has been taken.
            channel.basic_qos(prefetch_count=1, callback=lambda _: self._end())


def main() -> None:
    url, queue, letters, prefetch = sys.argv[1:5]
    drain = Drain(url, queue, int(letters), int(prefetch))
    drain.run()
    print(drain.seconds)


if __name__ == "__main__":
    main()
