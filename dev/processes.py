"""Child processes of a run: each in a session of its own, with a log file, on the run's record.

A session of its own means that the terminal's Ctrl-C reaches only us; we then stop the children in order.
"""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.identity import MARK, Identity, family, identify, is_running, send
from dev.runs import ProcessRecord, Run

GRACE = 15.0  # seconds between the request to stop and SIGKILL


@dataclass(frozen=True)
class Account:
    """The user a child runs as, when it is not ours."""

    uid: int
    gid: int
    home: str


@dataclass
class Child:
    """A running child. `log` holds its stdout and stderr."""

    run: Run
    record: ProcessRecord
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def pid(self) -> int:
        return self.popen.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self.popen.poll()

    def stop(self, grace: float = GRACE) -> int:
        """Asks it to stop; after `grace` seconds SIGKILL, to it and all it started. Returns its exit code."""
        end(self.record, grace)
        return self._gone()

    def kill(self) -> int:
        """SIGKILL at once, to it and all it started."""
        end(self.record, grace=None)
        return self._gone()

    def _gone(self) -> int:
        code = self.popen.wait()
        self.run.forget(self.record)
        return code


def spawn(
    run: Run,
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    account: Account | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
) -> Child:
    """Starts `argv` and records it. `env` replaces the environment (None: ours).

    Raises OSError when it cannot be executed.
    """
    mark = uuid.uuid4().hex
    run.logs.mkdir(parents=True, exist_ok=True)
    log = run.logs / f"{name}.log"
    with log.open("ab") as output:
        popen = subprocess.Popen(
            argv,
            env={**(os.environ if env is None else env), MARK: mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[account.gid] if account else None,
        )
    # A child that has died already leaves a zombie until we wait for it, so its number is not reused yet.
    identity = identify(popen.pid) or Identity(popen.pid, 0, "")
    record = ProcessRecord(name, identity, mark, int(stop_signal))
    run.record(record)
    return Child(run, record, popen, log)


def end(record: ProcessRecord, grace: float | None) -> bool:
    """Ends exactly the recorded process and its family; True when anything of it was still running.

    With a grace (seconds) the process is asked first; what is left of its family then gets SIGKILL.
    """
    leader = record.identity
    members = family(leader, record.mark)
    if not members:
        return False
    if grace is not None and send(leader, record.stop_signal):
        _wait_gone({leader}, grace)
    members |= family(leader, record.mark)
    for each in sorted(
        members, key=lambda member: member != leader
    ):  # the leader first: it may restart the others
        send(each, signal.SIGKILL)
    _wait_gone(members, GRACE)
    return True


def _wait_gone(members: set[Identity], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(is_running(each) for each in members) and time.monotonic() < deadline:
        time.sleep(0.05)


def tail(log: Path, lines: int = 20) -> str:
    """The end of a log, for an error message."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
