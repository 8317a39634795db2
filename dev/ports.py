"""Free loopback ports for servers."""

import random
import socket
from pathlib import Path

from dev.runs import PURPOSES, Purpose

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


# Tests take theirs from here on: a server that they stop finds its own free when it starts again.
OF_TESTS = 20_000


def free_ports(count: int, purpose: Purpose) -> list[int]:
    """`count` different ports of 127.0.0.1 on which nothing listens now.

    Each purpose has its share: two that start at once would else take one port. They lie below the range from
    which the kernel serves outgoing connections. In that range a client that keeps reconnecting to a stopped
    server can be given the server's own port, and then talks to itself.
    """
    try:
        ceiling = int(_RANGE.read_text().split()[0])
    except OSError:
        ceiling = 32768
    ceiling = min(ceiling, OF_TESTS)
    floor = 15_000 if ceiling == OF_TESTS else 1024
    candidates = list(range(floor + PURPOSES.index(purpose), max(ceiling, floor + 1000), len(PURPOSES)))
    random.shuffle(candidates)
    found: list[int] = []
    for port in candidates:
        if _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports between {floor} and {ceiling} on 127.0.0.1")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
