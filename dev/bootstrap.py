"""Makes `.venv` with the locked dependencies: `python3 -m dev.bootstrap [--keep-python]`, from the root.

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
from dev.runs import PURPOSES, Purpose, lock

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "redrive-stamp.json"
LOCK = ROOT / "requirements-dev.lock"


def main() -> int:
    (ROOT / ".local").mkdir(exist_ok=True)
    with (ROOT / ".local" / "bootstrap.lock").open("w") as turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is installing; waiting for it")
            fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            bootstrap(keep_python="--keep-python" in sys.argv[1:])
        except DevError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


class BootstrapFailed(DevError):
    """A step of the installation failed; the message names it and shows the end of its output."""


def say(line: str) -> None:
    print(f"bootstrap: {line}", file=sys.stderr, flush=True)


def bootstrap(*, keep_python: bool) -> None:
    """Brings `.venv` to what the project's files say. `keep_python`: the Python it was made with will do.

    Raises BootstrapFailed or PackagesMissing.
    """
    wanted, found = stamp(), _found_stamp()
    if keep_python and found and found.get("python") == _python(VENV / "bin" / "python"):
        wanted["python"] = found["python"]
    if found == wanted:
        return
    changed = {key for key in wanted if found is None or found.get(key) != wanted[key]}
    if live := [
        purpose for purpose in PURPOSES if changed & {"python", "root", "lock"} and _is_live(purpose)
    ]:
        raise BootstrapFailed(f".venv has to change, and `make {live[0]}` is running on it: end that first")
    # Scripts and the interpreter's link hold absolute paths: another place or Python means a new environment.
    if changed & {"python", "root"}:
        _make_venv()
    STAMP.unlink(missing_ok=True)
    if changed & {"python", "root", "lock"}:
        say("installing the locked dependencies")
        _pip("install", "--require-hashes", "-r", str(LOCK))
    _pip("install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
    STAMP.write_text(json.dumps(wanted, indent=2) + "\n")
    say("ready")


def stamp() -> dict[str, str]:
    """What the environment depends on. The top-level packages count: an editable install lists them once."""
    packages = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
    return {
        "python": _python(Path(sys.executable)),
        "root": str(ROOT),
        "lock": hashlib.sha256(LOCK.read_bytes()).hexdigest(),
        "pyproject": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
        "packages": " ".join(packages),
    }


def _python(executable: Path) -> str:
    """The file behind an interpreter's links, e.g. /usr/bin/python3.11: it changes with the version."""
    return str(executable.resolve())


def _found_stamp() -> dict[str, str] | None:
    try:
        found = json.loads(STAMP.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and os.access(VENV / "bin" / "python", os.X_OK) else None


def _is_live(purpose: Purpose) -> bool:
    held = lock(purpose)
    if held:
        held.close()
    return held is None


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


def pip_news(line: str, collected: int) -> str | None:
    """What a line of pip's output says in a few words; None: nothing new."""
    words = line.split()
    match words:
        case ["Collecting", requirement, *_]:
            return f"{_packages(collected)} collected, the last one {requirement}"
        case ["Installing", "collected", "packages:", *packages]:
            return f"installing {_packages(len(packages))}"  # takes long and says nothing on the way
        case ["Successfully", "installed", *packages]:
            return f"{_packages(len(packages))} installed"
    return None


def _packages(count: int) -> str:
    return f"{count} package{'s' * (count != 1)}"


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
            one_of_many = line.startswith("Collecting ")
            collected += one_of_many
            news = pip_news(line, collected)
            if news and (not one_of_many or time.monotonic() - told > 4):
                told = time.monotonic()
                say(f"{name}: {news}")
    if process.returncode != 0:
        raise BootstrapFailed(f"{name} failed (exit {process.returncode}):\n{''.join(tail)}")


if __name__ == "__main__":
    sys.exit(main())
