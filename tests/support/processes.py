"""Real processes of ours, started with a clean environment; their logs are shown when a test fails."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.waiting import LEAST_S, eventually, patient

ROOT = Path(__file__).parents[2]
TAIL_LINES = 60


class Process:
    """One process in a process group of its own; standard output and error go to one log file."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], directory: Path) -> None:
        self.name = name
        self.log_file = directory / f"{name}.log"
        self._forgotten = 0
        with self.log_file.open("ab") as log:
            self._popen = subprocess.Popen(
                list(argv),
                cwd=directory,  # no .env of the checkout is read
                env=clean_environment(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        return self.log_file.read_bytes()[self._forgotten :].decode(errors="replace")

    def forget_log(self) -> None:
        """`log` tells only what comes from now on."""
        self._forgotten = self.log_file.stat().st_size

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative after a signal."""
        return self._popen.poll()

    def wait_for_log(self, text: str, deadline_s: float = 20.0) -> None:
        """Waits until the log holds `text`; fails at once when the process has ended without it."""

        def said() -> bool:
            ended = self.exit_code
            if text in self.log:
                return True
            if ended is not None:
                raise RuntimeError(f"{self.name} ended with {ended} before it said {text!r}:\n{self.tail()}")
            return False

        eventually(said, deadline_s, f"{self.name} says {text!r}")

    def wait(self, deadline_s: float = 20.0) -> int:
        """Waits for the process to end by itself; its exit code."""
        deadline_s = patient(deadline_s)
        try:
            return self._popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {deadline_s:g} s:\n{self.tail()}") from None

    def send(self, number: signal.Signals) -> None:
        """A signal to the process itself, not to its children."""
        self._popen.send_signal(number)

    def terminate(self, deadline_s: float = 20.0) -> int:
        """SIGTERM, as an operator stops it; its exit code. Fails if it does not end in time."""
        self.send(signal.SIGTERM)
        return self.wait(deadline_s)

    def kill(self) -> None:
        """SIGKILL to the process alone: its children, if any, stay."""
        self.send(signal.SIGKILL)
        self._popen.wait(LEAST_S)

    def kill_group(self) -> None:
        """SIGKILL to the process and all its children, as the kernel does to a container out of memory."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(LEAST_S)

    def tail(self) -> str:
        return "\n".join(self.log.splitlines()[-TAIL_LINES:])


class Processes:
    """Starts processes for one test and ends what is left of them (fixture `processes`)."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[Process] = []

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Process:
        """Start `argv`. `name` is for messages; a second process of the same name gets a number."""
        same = sum(1 for process in self.started if process.name.rstrip("0123456789-") == name)
        process = Process(f"{name}-{same + 1}" if same else name, argv, env, self.directory)
        self.started.append(process)
        return process

    def start_module(self, name: str, module: str, *arguments: str, env: Mapping[str, str]) -> Process:
        """`python -m module arguments…`"""
        return self.start(name, [sys.executable, "-m", module, *arguments], env)

    def close(self) -> None:
        for process in reversed(self.started):
            process.kill_group()


def console_script(entry_point: str, *arguments: str) -> list[str]:
    """Command line of the console script `module:function`, whether it is installed or not.

    It heeds Ctrl-C also where the tests run in the background of a shell, which ignores it there.
    """
    module, function = entry_point.split(":")
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from {module} import {function} as run; sys.argv[0] = {module!r}; sys.exit(run())"
    )
    return [sys.executable, "-c", code, *arguments]


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This environment without any REDRIVE_ setting, plus `extra`; our packages are importable.

    What a process compiles is kept for the next one: a suite starts a thousand.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("REDRIVE_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | dict(extra)
