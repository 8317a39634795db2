"""Prometheus' own checker of rules and pages, for the tests.

Debian's package also installs a monitoring server that starts: it is unpacked under .local/, not installed.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from dev.waiting import Say

PACKAGE = "prometheus"
PLACE = Path(__file__).resolve().parent.parent / ".local" / "promtool"
SECONDS = 120


def find() -> Path | None:
    """The machine's, or the one that was unpacked before."""
    if found := shutil.which("promtool"):
        return Path(found)
    return PLACE if PLACE.exists() else None


def provide(say: Say) -> Path | None:
    """The checker, from the package if need be (19 MB); None where there is no apt-get or no such package."""
    if (found := find()) is not None or shutil.which("apt-get") is None:
        return found
    say(f"checking alert rules: downloading Debian's package {PACKAGE} for promtool")
    with tempfile.TemporaryDirectory() as directory:
        if not _done(["apt-get", "download", "-q", PACKAGE], directory):
            return None
        (package,) = Path(directory).glob("*.deb")
        if not _done(["dpkg-deb", "-x", str(package), "unpacked"], directory):
            return None
        PLACE.parent.mkdir(exist_ok=True)
        half = PLACE.with_suffix(".part")
        shutil.copy2(Path(directory) / "unpacked" / "usr" / "bin" / "promtool", half)
        half.replace(PLACE)
    return PLACE


def _done(command: list[str], directory: str) -> bool:
    try:
        return subprocess.run(command, cwd=directory, capture_output=True, timeout=SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
