"""The third party and the webhook sink as processes of a test, each with its client."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dev.sink.client import SinkClient
from dev.thirdparty.client import ThirdPartyClient
from tests.support.processes import Process, Processes
from tests.support.waiting import eventually

LISTENS = re.compile(r"listens on (http://\S+)")


@dataclass(frozen=True)
class RunningSink:
    """A sink, and what a sender needs for REDRIVE_ALERT_WEBHOOK_URL and _SECRET."""

    client: SinkClient
    url: str
    secret: str


@pytest.fixture
def third_party(processes: Processes) -> Iterator[ThirdPartyClient]:
    """One third party: `.url`, `.fail(path, {"status": 503})`, `.requests(path)`, `.charges()`."""
    client = start_third_party(processes)
    yield client
    client.close()


def start_third_party(processes: Processes) -> ThirdPartyClient:
    """The caller closes the client."""
    process = processes.start_module("third-party", "dev.thirdparty", "--port", "0", env={})
    return ThirdPartyClient(_address(process))


@pytest.fixture
def sink(processes: Processes) -> Iterator[RunningSink]:
    """A webhook sink of this test alone: `.url`, `.secret`, `.client.received()`, `.client.refused()`."""
    secret = secrets.token_hex(16)
    process = processes.start_module(
        "sink", "dev.sink", "--port", "0", env={"REDRIVE_ALERT_WEBHOOK_SECRET": secret}
    )
    url = _address(process)
    client = SinkClient(url)
    yield RunningSink(client, f"{url}/alerts", secret)
    client.close()


def _address(process: Process) -> str:
    process.wait_for_log("listens on")
    found = eventually(lambda: LISTENS.search(process.log), 5, f"{process.name} says where it listens")
    assert found is not None
    return found[1]
