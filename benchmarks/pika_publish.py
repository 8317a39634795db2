"""pika alone, as fast as it goes: publishes messages, confirmed and mandatory, with many in flight.

`python -m benchmarks.pika_publish URL QUEUE FILE` takes the messages from a pickle of (property list, body)
and prints the seconds from the first publish to the last confirm.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pika

from benchmarks.pika_alone import PikaAlone

IN_FLIGHT = 2_000


class Publish(PikaAlone):
    """Ends its connection after the last confirm."""

    def __init__(self, url: str, queue: str, messages: list[tuple[pika.BasicProperties, bytes]]) -> None:
        self._queue = queue
        self._messages = messages
        self._sent = self._confirmed = 0
        super().__init__(url)

    def _start(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._take, callback=lambda _: self._first())

    def _first(self) -> None:
        self._begin()
        self._send()

    def _send(self) -> None:
        until = min(len(self._messages), self._confirmed + IN_FLIGHT)
        for properties, body in self._messages[self._sent : until]:
            self._channel.basic_publish("", self._queue, body, properties, mandatory=True)
        self._sent = max(self._sent, until)

    def _take(self, frame: Any) -> None:
        method = frame.method
        assert method.NAME == "Basic.Ack", method
        self._confirmed = method.delivery_tag if method.multiple else self._confirmed + 1
        if self._confirmed >= len(self._messages):
            self._end()
        elif self._sent - self._confirmed < IN_FLIGHT // 2:
            self._send()


def main() -> None:
    url, queue, path = sys.argv[1:4]
    raw: list[tuple[bytes, bytes]] = pickle.loads(Path(path).read_bytes())  # noqa: S301 - written by benchmarks.replay
    messages = [(pika.BasicProperties().decode(properties), body) for properties, body in raw]
    publish = Publish(url, queue, messages)
    publish.run()
    print(publish.seconds)


if __name__ == "__main__":
    main()
