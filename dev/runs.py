"""One run of `up`, `demo` or `test`: its directory under .local/, its lock, the record of what it started.

The record is what `make down` works from after a crash. It is written before anything can be lost: a
process the moment it exists, containers and directories before they do.
"""

import fcntl
import hashlib
import json
import os
import threading
from dataclasses import asdict, dataclass, field, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, get_args

from dev.errors import DevError
from dev.identity import Identity, identify

ROOT = Path(__file__).resolve().parent.parent
LOCAL = ROOT / ".local"
Purpose = Literal["up", "demo", "test", "test-2", "test-3", "test-4"]
# A test run of several processes has servers for each.
TESTS: tuple[Purpose, ...] = ("test", "test-2", "test-3", "test-4")
_STATE = "state.json"
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


class AlreadyRunning(DevError):
    """Another process holds this purpose's lock."""


@dataclass(frozen=True)
class ProcessRecord:
    """A process started by a run. `stop_signal` asks it to end well; `mark` is in its environment."""

    name: str
    identity: Identity
    mark: str
    stop_signal: int


@dataclass(frozen=True)
class RunState:
    """What a run owns. `containers` are Docker labels (`name=value`); `directories` lie outside .local/."""

    owner: Identity | None = None
    processes: tuple[ProcessRecord, ...] = ()
    containers: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


def dump_state(state: RunState) -> str:
    return json.dumps(asdict(state), indent=2) + "\n"


def save_state(directory: Path, state: RunState) -> None:
    """Replaces the record in one step: a reader, or a crash, finds the old or the new one."""
    new = directory / "state.new"
    new.write_text(dump_state(state))
    new.replace(directory / _STATE)


def load_state(directory: Path) -> RunState:
    """The directory's record; an empty one when there is none. Raises DevError when it cannot be read."""
    path = directory / _STATE
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        return RunState(
            owner=Identity(**raw["owner"]) if raw["owner"] else None,
            processes=tuple(
                ProcessRecord(**{**each, "identity": Identity(**each["identity"])})
                for each in raw["processes"]
            ),
            containers=tuple(raw["containers"]),
            directories=tuple(raw["directories"]),
        )
    except FileNotFoundError:
        return RunState()
    except (ValueError, KeyError, TypeError) as error:
        raise DevError(
            f"{path} does not hold the record of a run ({error!r}). Look at it, then remove it."
        ) from error


def target(purpose: Purpose) -> str:
    """The make target that it belongs to."""
    return purpose.partition("-")[0]


def directory_of(purpose: Purpose) -> Path:
    return LOCAL / purpose


def project(purpose: Purpose) -> str:
    """A name for this clone and purpose, for whatever is shared by the whole machine."""
    return f"redrive-{purpose}-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}"


def lock(purpose: Purpose) -> TextIOWrapper | None:
    """The purpose's lock, or None when a live process holds it. The kernel frees it when its holder dies."""
    LOCAL.mkdir(exist_ok=True)
    file = (LOCAL / f"{purpose}.lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


@dataclass
class Run:
    """A run in progress. `directory` is its own; `logs` outlive it."""

    purpose: Purpose
    directory: Path
    held: TextIOWrapper
    state: RunState = field(default_factory=RunState)
    guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def record(
        self, *added: ProcessRecord, container: str | None = None, directory: Path | None = None
    ) -> None:
        with self.guard:
            self._write(
                replace(
                    self.state,
                    processes=self.state.processes + added,
                    containers=_with(self.state.containers, container),
                    directories=_with(self.state.directories, str(directory) if directory else None),
                )
            )

    def forget(self, record: ProcessRecord) -> None:
        with self.guard:
            kept = tuple(each for each in self.state.processes if each != record)
            self._write(replace(self.state, processes=kept))

    def start_record(self, kept: RunState) -> None:
        """The record of a fresh run: this process, and what is kept of an earlier one."""
        self._write(replace(kept, owner=identify(os.getpid())))

    def _write(self, state: RunState) -> None:
        self.state = state
        save_state(self.directory, state)


def _with(known: tuple[str, ...], more: str | None) -> tuple[str, ...]:
    return known if more is None or more in known else (*known, more)


def open_run(purpose: Purpose) -> Run:
    """Takes the purpose's lock. Raises AlreadyRunning, naming the process that holds it.

    Its state is what the last run left: `dev.leftovers.begin` clears that away first.
    """
    held = lock(purpose)
    directory = directory_of(purpose)
    if held is None:
        owner = load_state(directory).owner
        who = f"process {owner.pid}" if owner else "another process"
        raise AlreadyRunning(
            f"`make {target(purpose)}` is running already in {ROOT} ({who}). "
            "End it first, or use another clone."
        )
    directory.mkdir(exist_ok=True)
    return Run(purpose, directory, held, load_state(directory))
