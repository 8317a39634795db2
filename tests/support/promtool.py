"""Runs Prometheus' checker."""

from __future__ import annotations

import subprocess

import pytest

import dev.promtool
from tests.support.databases import ROOT


def promtool(*arguments: str, stdin: str = "") -> None:
    """Fails with what it says; skips where it cannot be had."""
    found = dev.promtool.provide(print)
    if found is None:
        pytest.skip("not run: there is no promtool, and Debian's package prometheus cannot be downloaded")
    done = subprocess.run(
        [str(found), *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
