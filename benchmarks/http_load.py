"""A client that takes little CPU time: requests made before, sent over kept connections by epoll."""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

STUCK_S = 60.0
_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


@dataclass
class Answers:
    """Seconds from when a request was due to its whole answer; `lasted` is that of all of them."""

    lasted: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.lasted

    def quantile(self, share: float) -> float:
        """Milliseconds, of 99 % for 0.99."""
        found = sorted(self.latencies)
        return 1000 * found[min(len(found) - 1, int(share * len(found)))]


class _Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=STUCK_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._got = b""

    def ask(self, request: bytes, due: float) -> None:
        self.due, self._got = due, b""
        self.socket.sendall(request)

    def status(self) -> int | None:
        """Once the answer is whole."""
        chunk = self.socket.recv(65_536)
        if not chunk:
            raise ConnectionError("the server closed a connection")
        self._got += chunk
        end = self._got.find(_END)
        if end < 0:
            return None
        head = self._got[:end].lower()
        start = head.index(_LENGTH) + len(_LENGTH)
        length = int(head[start:].partition(b"\r\n")[0])
        return int(head[9:12]) if len(self._got) >= end + len(_END) + length else None


def post(path: str, body: bytes, headers: str = "") -> bytes:
    """A request in bytes; each of `headers` ends with a line break."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()


def load(port: int, requests: Sequence[bytes], connections: int, rate: float | None = None) -> Answers:
    """Send all, one at a time on each connection: as fast as answers come, or `rate` each second.

    With a rate, a request counts from when it was due, also when no connection was free for it.
    """
    answers, open_ = Answers(), [_Connection(port) for _ in range(connections)]
    idle, by_file, sent = list(open_), {each.socket.fileno(): each for each in open_}, 0
    with select.epoll() as poll:
        for file in by_file:
            poll.register(file, select.EPOLLIN)
        began = time.perf_counter()
        while len(answers.latencies) < len(requests):
            now = time.perf_counter()
            while idle and sent < len(requests) and (due := began + sent / rate if rate else now) <= now:
                idle.pop().ask(requests[sent], due)
                sent += 1
            wait = STUCK_S
            if idle and rate and sent < len(requests):
                wait = max(0.0, began + sent / rate - time.perf_counter())
            ready = poll.poll(wait)
            assert ready or wait < STUCK_S, f"no answer for {STUCK_S:g} s"
            for file, _ in ready:
                connection = by_file[file]
                if (status := connection.status()) is not None:
                    answers.statuses[status] += 1
                    answers.latencies.append(time.perf_counter() - connection.due)
                    idle.append(connection)
        answers.lasted = time.perf_counter() - began
    for each in open_:
        each.socket.close()
    return answers
