"""The broker and the database of a test session: one of each, vhosts and databases separate the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dev.errors import DevError
from dev.runs import TESTS, Purpose
from dev.servers import NotControllable, Servers, ServerUrls, acquire

__all__ = ["NotControllable", "ServerUrls", "Servers", "acquired_servers"]


def number_of_process() -> int:
    """From 0 on, of this process among those of one test run (pytest-xdist)."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def purpose() -> Purpose:
    """Of this process's servers: each process of one test run has its own."""
    number = number_of_process()
    if number >= len(TESTS):
        pytest.exit(f"{len(TESTS)} processes of a test run have servers of their own, no more", returncode=1)
    return TESTS[number]


def acquired_servers(config: pytest.Config) -> Iterator[Servers]:
    """Yields servers that answer, as `dev.servers` finds or starts them, and closes what it started.

    A test that stops or kills a server starts it again before it ends.
    """
    capture = config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        if capture is None:
            print(f"servers: {line}", flush=True)
            return
        with capture.global_and_fixture_disabled():
            print(f"\nservers: {line}", end="", flush=True)

    try:
        servers = acquire(purpose(), say)
    except DevError as error:  # without servers each remaining test would only repeat it
        pytest.exit(f"no servers for the tests: {error}", returncode=1)
    with servers:
        yield servers
