"""Who runs a command: the operating system's user, and the host."""

from __future__ import annotations

import os
import pwd
import socket


def actor() -> str:
    """Such as `ada@build-7`: of the process's user id, not of the environment, which says what one likes."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # in a container a user need not have a name
        name = f"uid-{number}"
    return f"{name}@{socket.gethostname()}"
