"""Makes `.venv` with the locked dependencies: `python3 -m dev.bootstrap`, from the project's root.

Standard library only, run by the machine's own Python. A stamp makes a second run instant, a file lock
makes two runs at once take turns. pip's own configuration on this machine (index, proxy, cache) is respected.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python is handed
    sys.exit(
        "Redrive needs Python 3.11 or newer; {} is {}.{}.\nName another one: make PYTHON=python3.13 …".format(
            sys.executable, *sys.version_info[:2]
        )
    )


import fcntl
import hashlib
import importlib.util
import json
import os
import subprocess
import time
from collections import deque
from pathlib import Path

from dev import apt
from dev.errors import DevError

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "redrive-stamp.json"
LOCK = ROOT / "requirements-dev.lock"


def main() -> int:
    (ROOT / ".local").mkdir(exist_ok=True)
    with (ROOT / ".local" / "bootstrap.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is installing; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            bootstrap()
        except DevError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


class BootstrapFailed(DevError):
    """A step of the installation failed; the message names it and shows the end of its output."""


def say(line: str) -> None:
    print(f"bootstrap: {line}", file=sys.stderr, flush=True)


def bootstrap() -> None:
    wanted, found = stamp(), _found_stamp()
    if found == wanted:
        return
    # Scripts and the interpreter's link hold absolute paths: another place or Python means a new environment.
    if found is None or any(found.get(key) != wanted[key] for key in ("python", "root")):
        _make_venv()
    STAMP.unlink(missing_ok=True)
    count = sum(1 for line in LOCK.read_text().splitlines() if line[:1].isalnum())
    say(f"installing the locked dependencies (up to {count} packages)")
    _pip("install", "--require-hashes", "-r", str(LOCK))
    _pip("install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    STAMP.write_text(json.dumps(wanted, indent=2) + "\n")
    say("ready")


def stamp() -> dict[str, str]:
    """What the environment depends on. The top-level packages count: an editable install lists them once."""
    packages = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
    return {
        "python": f"{sys.version} {Path(sys.executable).resolve()}",
        "root": str(ROOT),
        "lock": hashlib.sha256(LOCK.read_bytes()).hexdigest(),
        "pyproject": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
        "packages": " ".join(packages),
    }


def _found_stamp() -> dict[str, str] | None:
    try:
        found = json.loads(STAMP.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and os.access(VENV / "bin" / "python", os.X_OK) else None


def _make_venv() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        if not Path(sys.executable).resolve().is_relative_to("/usr/bin"):
            raise BootstrapFailed(
                f"{sys.executable} was built without ensurepip: make PYTHON=/usr/bin/python3 …"
            )
        apt.install(["python3-venv"], "making .venv", say)
    say(f"making .venv with Python {sys.version.split()[0]}")
    _run([sys.executable, "-m", "venv", "--clear", str(VENV)], "python -m venv")


def _pip(*arguments: str) -> None:
    _run([str(VENV / "bin" / "python"), "-m", "pip", "--no-input", *arguments], f"pip {arguments[0]}")


def _run(command: list[str], name: str) -> None:
    """Runs `command`, with a line of progress every few seconds. A failure shows the end of its output."""
    # A user-wide `pip install --user` default cannot work inside a virtual environment.
    env = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    tail: deque[str] = deque(maxlen=30)
    collected, told = 0, time.monotonic()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line)
            collected += line.startswith("Collecting ")
            if time.monotonic() - told > 4:
                told = time.monotonic()
                say(f"{name}: {collected} packages fetched; {line.strip()[:80]}")
    if process.returncode != 0:
        raise BootstrapFailed(f"{name} failed (exit {process.returncode}):\n{''.join(tail)}")


if __name__ == "__main__":
    sys.exit(main())
