"""A dead-letter consumer over a small topology, and an API over both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.graveyard import Graveyard
from tests.support.stack import Stack


@dataclass
class Counter(Graveyard):
    """A graveyard with an API over it."""

    stack: Stack = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stack = Stack(self.vhost, self.database, self.processes, self.settings)
        self.stack.start_api()
        self.start().wait_for_log("draining mails.dlq")

    @property
    def http(self) -> httpx.Client:
        return self.stack.http

    def close(self) -> None:
        self.stack.close()


def problem(answer: httpx.Response) -> tuple[int, str]:
    body: dict[str, Any] = answer.json()
    return answer.status_code, str(body["type"]).removeprefix("urn:redrive:problem:")
