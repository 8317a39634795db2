"""Processes that a nursery forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.processes import clean_environment
from tests.support.waiting import eventually


class Nursery:
    """Starts `dlq consume`, or the API, in a directory of its own. `close` ends it and what it started."""

    def __init__(self, directory: Path, settings: Mapping[str, str], program: str = "dlq") -> None:
        self.log_file = directory / "processes.log"
        self._environment = clean_environment(settings)
        self._alive: set[int] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.crashing.nursery", program],
            cwd=directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, *, points: Path | None = None, die_at: str = "") -> int:
        """Its pid. It notes the points that it passes, or dies at one, or does neither."""
        pid = int(
            self._ask(
                what="start", log=str(self.log_file), environment=self._environment,
                points=str(points or ""), die_at=die_at,
            )
        )  # fmt: skip
        self._alive.add(pid)
        return pid

    def start_draining(self) -> int:
        """One that does not die; it has begun, and heeds signals, when this returns."""
        before = self._begun()
        pid = self.start()
        eventually(lambda: self._begun() > before, 30, "the consumer drains")
        return pid

    def exit_code(self, pid: int) -> int | None:
        """Of one that is alive; None while it is. Negative after a signal."""
        code: int | None = self._ask(what="state", pid=pid)
        if code is not None:
            self._alive.discard(pid)
        return code

    def terminate(self, pid: int) -> int:
        """SIGTERM; the exit code."""
        os.kill(pid, signal.SIGTERM)
        found: list[int] = []

        def ended() -> bool:
            if (code := self.exit_code(pid)) is not None:
                found.append(code)
            return bool(found)

        eventually(ended, 30, "the process ends")
        return found[0]

    def close(self) -> None:
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _begun(self) -> int:
        return self.log_file.read_text().count("draining orders.dlq") if self.log_file.exists() else 0

    def _ask(self, **order: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        return json.loads(self._process.stdout.readline())
