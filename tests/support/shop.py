"""The shop of `tests/adopt/before`, a Celery code base of other people: a copy of it, as it is or adopted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.databases import Database
from tests.support.processes import ROOT, Process, Processes, clean_environment, console_script
from tests.support.vhosts import Vhost

BEFORE = ROOT / "tests" / "adopt" / "before"
PATCH = ROOT / "tests" / "adopt" / "after.patch"
TOPOLOGY = "shop.app:TOPOLOGY"
# Our commands, whether they are installed or not.
ENTRY_POINTS = {
    "dlq": "dlq_consumer.cli:main",
    "storage": "storage.cli:main",
    "topology": "topology.cli:main",
    "workers": "workers.cli:main",
}


@dataclass
class Shop:
    """One copy of the shop's code, and the vhost that it uses."""

    code: Path
    vhost: Vhost
    processes: Processes
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        mine = {
            "SHOP_BROKER": self.vhost.amqp_url,
            "SHOP_JOURNAL": str(self.code / "journal"),
            "PYTHONPATH": f"{self.code}:{ROOT}",
        }
        return mine | self.settings

    def worker(self, *arguments: str, ready: bool = True) -> Process:
        """`celery -A shop.app worker`; consuming when this returns, unless told otherwise."""
        name = f"{self.code.name}-{len(self.processes.started)}@test"
        argv = [*PYTHON_M, "celery", "-A", "shop.app", "worker", "-n", name, "-c", "2", "-l", "INFO"]
        process = self.processes.start("worker", [*argv, *arguments], self.environment)
        if ready:
            process.wait_for_log("ready.", 60)
        return process

    def python(self, *arguments: str) -> str:
        """Run the shop's Python to its end; what it printed."""
        return python(self.code, arguments, self.environment)

    def command(self, name: str, *arguments: str, code: int = 0) -> str:
        """Run one of our commands to its end, in the shop's folder; what it printed, errors too."""
        done = subprocess.run(
            console_script(ENTRY_POINTS[name], *arguments),
            cwd=self.code,
            env=clean_environment(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def journal(self) -> list[dict[str, Any]]:
        """What its jobs, hooks and signals wrote down."""
        file = self.code / "journal"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def wrote(self, **fields: Any) -> int:
        """How many lines of the journal have these fields."""
        return sum(fields.items() <= line.items() for line in self.journal())


PYTHON_M = (sys.executable, "-m")


def python(code: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run Python in a copy of the shop to its end; what it printed. Fails where it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=code,
        env=clean_environment({"PYTHONPATH": f"{code}:{ROOT}"} | dict(environment)),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy(code: Path, *, patched: bool = False) -> None:
    """The shop's code, as it is or with the patch."""
    shutil.copytree(BEFORE, code, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    if patched:
        subprocess.run(["git", "apply", str(PATCH)], cwd=code, check=True, capture_output=True)


def plain(directory: Path, vhost: Vhost, processes: Processes) -> Shop:
    """The shop as it is: plain Celery."""
    code = directory / "plain"
    copy(code)
    return Shop(code, vhost, processes)


def adopted(
    directory: Path, vhost: Vhost, database: Database, processes: Processes, *, names: str = "{}"
) -> Shop:
    """The shop with the patch applied. `names` forms the names of its queues; `{}` stands for the old one."""
    code = directory / "adopted"
    copy(code, patched=True)
    file = code / "shop" / "app.py"
    text = file.read_text()
    for queue in ("orders", "mails"):
        text = text.replace(f'"{queue}"', f'"{names.format(queue)}"')
    file.write_text(text)
    settings = {
        "REDRIVE_AMQP_URL": vhost.amqp_url,
        "REDRIVE_MANAGEMENT_URL": vhost.management_url,
        "REDRIVE_DATABASE_URL": database.url,
        "REDRIVE_TOPOLOGY": TOPOLOGY,
    }
    return Shop(code, vhost, processes, settings)
