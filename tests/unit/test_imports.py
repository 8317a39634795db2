"""Imports run one way; SQL, broker arguments and settings each have their one place."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from tests.support.import_rules import MAY_IMPORT, offences

ROOT = Path(__file__).parents[2]


def test_the_project_keeps_its_rules() -> None:
    files = [file for package in (*MAY_IMPORT, "tests") for file in sorted((ROOT / package).rglob("*.py"))]
    found = [
        offence
        for file in files
        for offence in offences(
            PurePosixPath(file.relative_to(ROOT).as_posix()), file.read_text(encoding="utf-8")
        )
    ]
    assert files
    assert found == []


@pytest.mark.parametrize(
    ("path", "source", "offence"),
    [
        ("topology/x.py", "import storage.pool", "imports storage.pool"),
        ("storage/x.py", "from topology import names", "imports topology"),
        ("storage/x.py", "from .pool import connect", "imports relatively"),
        ("workers/x.py", "def f():\n    from api.app import app", "imports api.app"),
        ("api/x.py", "from dlq_consumer.classify import classify", "imports dlq_consumer"),
        ("dlq_consumer/x.py", "import workers", "imports workers"),
        ("dev/x.py", "from api.app import app", "imports api.app"),
        ("api/x.py", "import tests.conftest", "imports tests.conftest"),
        ("api/x.py", "import asyncpg", "imports asyncpg"),
        ("api/x.py", "SQL = 'select id\\nfrom redrive.jobs'", "holds SQL"),
        ("workers/x.py", "f('UPDATE redrive.jobs SET state = 1')", "holds SQL"),
        ("dlq_consumer/x.py", "A = {'x-queue-type': 'quorum'}", "names a broker argument"),
        ("api/x.py", "channel.queue_declare('q')", "calls queue_declare"),
        ("api/x.py", "import os\nX = os.environ.get('A')", "reads os.environ"),
        ("workers/x.py", "import os\nX = os.getenv('A')", "reads os.getenv"),
        ("api/routes.py", "s = StorageSettings()", "builds StorageSettings"),
        ("api/routes.py", "s = read_settings(StorageSettings)", "calls read_settings"),
        ("tests/unit/test_x.py", "import time\ntime.sleep(1)", "sleeps"),
    ],
)
def test_a_breach_is_found(path: str, source: str, offence: str) -> None:
    assert any(offence in found for found in offences(PurePosixPath(path), source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "api/x.py",
            "from storage.jobs import submit\nfrom topology.spec import Topology\nfrom api.auth import key",
        ),
        ("storage/x.py", "import asyncpg\nSQL = 'SELECT 1 FROM redrive.jobs'"),
        ("topology/x.py", "A = {'x-queue-type': 'quorum'}"),
        ("api/app.py", "s = ApiSettings()"),
        ("dev/x.py", "import os\nX = os.environ"),
        ("api/x.py", '"""Select one thing from many."""\nH = "X-Request-Id"\nT = "select a job type"'),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert offences(PurePosixPath(path), source) == []
