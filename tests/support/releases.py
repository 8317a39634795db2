"""A release beside this one: the same tree with other migrations."""

from __future__ import annotations

import shutil
from pathlib import Path

from storage.migrate import migrations
from tests.support.processes import ROOT

NEXT = len(migrations()) + 1


def next_release(directory: Path, *added: str, packages: tuple[str, ...] = ("storage",)) -> dict[str, str]:
    """Settings under which a command runs as of a release with these migrations added."""
    tree = directory / "next"
    for package in packages:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for level, sql in enumerate(added, NEXT):
        (tree / "storage" / "migrations" / f"{level:04}_added.sql").write_text(sql)
    return {"PYTHONPATH": f"{tree}:{ROOT}"}
