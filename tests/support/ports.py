"""Free loopback ports for servers that tests start."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from itertools import islice

from dev.ports import OF_TESTS
from dev.runs import TESTS
from tests.support.servers import number_of_process

# Below the kernel's range for outgoing connections (32768 up on Linux), so that no client takes a port
# which a test gives up for a moment on purpose.
HIGHEST = 32_000


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nothing listens on now, and that no other test is given soon."""
    for port in islice(_unused, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"200 ports of 127.0.0.1 between {OF_TESTS} and {HIGHEST} are taken")


def _shares() -> Iterator[int]:
    """Each process of a test run has its share, and takes all of it by turns."""
    mine = list(range(OF_TESTS + number_of_process(), HIGHEST, len(TESTS)))
    random.shuffle(mine)
    while True:
        yield from mine


_unused = _shares()
