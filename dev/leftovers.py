"""Ending what a run owns: at its own close, before the next run, and by `make down` after a crash."""

import shutil
import signal
import subprocess
import time
from io import TextIOWrapper
from pathlib import Path

from dev.errors import DevError
from dev.identity import send
from dev.interrupts import uninterrupted
from dev.processes import GRACE, end
from dev.runs import (
    PURPOSES,
    Purpose,
    Run,
    RunState,
    directory_of,
    load_state,
    lock,
    open_run,
    save_state,
    target,
)
from dev.waiting import Say

_STOP_SECONDS = 60.0  # for a live `make up` to end well


def begin(purpose: Purpose, say: Say) -> Run:
    """Opens a run on clean ground: leftovers of a crashed one are ended, their data goes unless it is `up`'s.

    Raises AlreadyRunning when a run of this purpose is alive in this clone.
    """
    run = open_run(purpose)
    left = run.state
    kept = clear(left, run.directory, say, keep_data=purpose == "up")
    shutil.rmtree(run.logs, ignore_errors=True)
    run.start_record(kept)
    return run


def close_run(run: Run, say: Say) -> None:
    """Ends all that the run recorded and frees its lock. Logs and `up`'s data stay. Safe to call twice."""
    if run.held.closed:
        return
    with uninterrupted():
        kept = clear(run.state, run.directory, say, keep_data=run.purpose == "up")
        save_state(run.directory, kept)
        run.held.close()


def down(say: Say, *, everything: bool = False) -> int:
    """`make down`: stops a live `make up`, ends what crashed runs left, removes their data.

    A live demo or test run is left alone: it clears away what it made when it ends. Returns the exit code:
    1 when a `make up` did not end, or, with `everything`, when any run is alive.
    """
    remains = False
    for purpose in PURPOSES:
        directory = directory_of(purpose)
        held = lock(purpose)
        if held is None and purpose == "up":
            held = _stop_live(load_state(directory), say)
        if held is None:
            if purpose == "up":
                say("`make up` did not end when asked to: it still runs")
            else:
                say(f"`make {target(purpose)}` is running: left alone; it ends and clears up by itself")
            remains |= everything or purpose == "up"
            continue
        with held, uninterrupted():
            if directory.exists():
                clear(load_state(directory), directory, say, keep_data=False)
                shutil.rmtree(directory)
                say(f"{purpose}: removed")
            else:
                say(f"{purpose}: nothing there")
    return int(remains)


def clear(state: RunState, directory: Path, say: Say, *, keep_data: bool) -> RunState:
    """Ends what `state` names, newest first. Its data goes, or stays and is then in the returned record."""
    for record in reversed(state.processes):
        if end(record, GRACE):
            say(f"stopped {record.name}")
    for label in state.containers:
        remove_containers(label, volumes=not keep_data)
    if keep_data:
        return RunState(containers=state.containers, directories=state.directories)
    try:
        for outside in state.directories:
            if Path(outside).exists():
                shutil.rmtree(outside)
        for entry in directory.iterdir():
            if entry.name not in ("logs", "state.json"):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    except PermissionError as error:
        raise DevError(f"{error.filename} belongs to another user: run `make down` as that user.") from error
    return RunState()


def remove_containers(label: str, *, volumes: bool) -> None:
    """Removes the containers and networks with this label, and its named volumes if asked."""
    kinds = [("ps", "-a"), ("rm", "-f", "-v"), ("network", "ls"), ("network", "rm")]
    if volumes:
        kinds += [("volume", "ls"), ("volume", "rm")]
    for listing, removal in zip(kinds[::2], kinds[1::2], strict=True):
        found = _docker(*listing, "-q", "--filter", f"label={label}").split()
        if found:
            _docker(*removal, *found)


def _docker(*arguments: str) -> str:
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=120)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise DevError(f"containers of an earlier run need Docker to remove them: {error}") from error
    if done.returncode != 0:
        raise DevError(f"docker {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def _stop_live(state: RunState, say: Say) -> TextIOWrapper | None:
    """Asks the recorded owner to end, as Ctrl-C in its terminal would; its lock once it has, else None."""
    if state.owner is None or not send(state.owner, signal.SIGTERM):
        return lock("up")
    say(f"stopping `make up` (process {state.owner.pid})")
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        if held := lock("up"):
            return held
        time.sleep(0.1)
    return None
