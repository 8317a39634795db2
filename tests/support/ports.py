"""Free loopback ports for servers that tests start."""

from __future__ import annotations

import random
import socket

# Below the kernel's range for outgoing connections (32768 up on Linux), so that no client takes a port
# which a test gives up for a moment on purpose.
LOWEST, HIGHEST = 20_000, 32_000


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nothing listens on now."""
    for port in random.sample(range(LOWEST, HIGHEST), 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port on 127.0.0.1 between {LOWEST} and {HIGHEST}")
