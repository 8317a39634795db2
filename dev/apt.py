"""Debian packages this machine lacks. Standard library only: `dev.bootstrap` runs before all else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from dev.errors import DevError
from dev.waiting import Say


class PackagesMissing(DevError):
    """Packages are missing and may not be installed from here; the message holds the command that does it."""


def install(packages: Sequence[str], why: str, say: Say) -> None:
    """Installs `packages` with apt-get, as root or with passwordless sudo, and says so.

    Raises PackagesMissing when there is no apt-get, no right to use it, or it fails.
    """
    names = " ".join(packages)
    by_hand = f"apt-get update && apt-get install -y --no-install-recommends {names}"
    if shutil.which("apt-get") is None:
        raise PackagesMissing(
            f"{why} needs the packages {names} (Debian's names), and there is no apt-get here."
        )
    prefix = _privilege()
    if prefix is None:
        raise PackagesMissing(
            f"{why} needs {names}, and neither root nor passwordless sudo is at hand. Run:\n"
            f"  sudo sh -c '{by_hand}'"
        )
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"]
    say(f"{why}: installing {names} with apt-get")
    if _visibly([*apt, "-qq", "update"]) != 0:
        say("apt-get update failed; trying with the package lists at hand")
    command = [*apt, "install", "-y", "-q", "--no-install-recommends", *packages]
    if _visibly(command) != 0:
        raise PackagesMissing(
            f"apt-get could not install {names} (its output is above). By hand:\n  {by_hand}"
        )


def _privilege() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def _visibly(command: list[str]) -> int:
    """apt's own lines are the progress. They go to stderr: our stdout is for what we say."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode
