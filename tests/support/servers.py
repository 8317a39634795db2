"""The servers that tests run against, named in the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ServerUrls:
    amqp: str
    management: str
    database: str


@dataclass(frozen=True)
class Servers:
    urls: ServerUrls


def named_servers() -> Iterator[Servers]:
    """Servers from REDRIVE_TEST_AMQP_URL, _MANAGEMENT_URL and _DATABASE_URL (admin URLs)."""
    names = ("REDRIVE_TEST_AMQP_URL", "REDRIVE_TEST_MANAGEMENT_URL", "REDRIVE_TEST_DATABASE_URL")
    if missing := [name for name in names if name not in os.environ]:
        raise RuntimeError(
            f"set {', '.join(missing)}: URLs of servers in which tests may create vhosts and databases"
        )
    amqp, management, database = (os.environ[name].rstrip("/") for name in names)
    yield Servers(ServerUrls(amqp, management, database))
