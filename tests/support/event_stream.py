"""Server-sent events, read beside the test."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx


class Events:
    """The events of one stream, read in a thread: (name, data), and the last id."""

    def __init__(self, answer: httpx.Response) -> None:
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.last_id = ""
        self.ended = False
        self._answer = answer
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        name = ""
        try:
            for line in self._answer.iter_lines():
                key, _, value = line.partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    self.found.append((name, json.loads(value)))
                elif key == "id":
                    self.last_id = value
            self.ended = True
        except (httpx.HTTPError, httpx.StreamError):
            pass
