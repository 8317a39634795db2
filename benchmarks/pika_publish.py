"""pika alone, as fast as it goes: publishes messages, confirmed and mandatory, with many in flight.

`python -m benchmarks.pika_publish URL QUEUE FILE` takes the messages from a pickle of (property list, body)
and prints the seconds from the first publish to the last confirm. Imports nothing of ours.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path
from typing import Any

import pika

IN_FLIGHT = 2_000


class Publish:
    """Ends its connection after the last confirm."""

    def __init__(self, url: str, queue: str, messages: list[tuple[pika.BasicProperties, bytes]]) -> None:
        self._queue = queue
        self._messages = messages
        self._sent = self._confirmed = 0
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
        self._channel = channel
        channel.confirm_delivery(self._take, callback=lambda _: self._begin())

    def _begin(self) -> None:
        self._begun = time.perf_counter()
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
            self.seconds = time.perf_counter() - self._begun
            self._connection.close()
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
