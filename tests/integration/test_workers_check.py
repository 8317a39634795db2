"""`workers check` says what a worker would refuse, and starts nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.databases import Database
from tests.support.ports import free_port
from tests.support.processes import Processes, clean_environment, console_script
from tests.support.vhosts import Vhost
from tests.support.work import APP, Work


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def check(work: Work, *arguments: str, app: str = APP, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        console_script("workers.cli:main", "check", "-A", app, *arguments),
        cwd=work.processes.directory,
        env=clean_environment(work.settings | settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_all_is_well(work: Work) -> None:
    for settings in ({}, {"REDRIVE_MANAGEMENT_URL": work.vhost.management_url}):
        done = check(work, "-Q", "work", **settings)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert "settings: OK" in lines
        assert any(line.startswith("tasks: OK (") for line in lines)
        assert any(line.startswith("queues work at ") and line.endswith(": OK") for line in lines)
        assert any(line.startswith("database ") and "OK (schema level " in line for line in lines)
        assert any(line.startswith("not seen: policies") for line in lines) == (not settings)
    assert work.vhost.consumers("work") == 0


BAD = """
from workers.celery_app import Redrive
app = Redrive("bad")
app.conf.update(task_create_missing_queues=True, task_always_eager=True)

@app.task(name="a.early", acks_late=False)
def early():
    pass

@app.task(name="a.endless", max_retries=None)
def endless():
    pass
"""


def test_every_finding_has_its_line(work: Work, empty_database: Database, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    with work.vhost.channel() as channel:
        channel.queue_delete("work")
    done = check(work, app="bad", REDRIVE_DATABASE_URL=empty_database.url)
    assert done.returncode == 1
    said = done.stderr.splitlines()
    for finding in (
        "task_create_missing_queues is on",
        "task_always_eager is on",
        "task a.early: acks_late is off",
        "task a.endless: max_retries is None",
        "queue 'work' is not on the broker; run: topology apply",
    ):
        assert [line for line in said if line.startswith(finding)], (finding, said)
    assert said[-1].endswith("Run: storage migrate")
    assert "OK" not in done.stdout


def test_a_server_that_is_away_is_a_finding(work: Work) -> None:
    away = f"127.0.0.1:{free_port()}"
    broker, database = f"amqp://guest:guest@{away}/{work.vhost.vhost}", f"postgresql://postgres:x@{away}/x"
    for settings in ({}, {"REDRIVE_MANAGEMENT_URL": work.vhost.management_url}):
        done = check(work, REDRIVE_AMQP_URL=broker, REDRIVE_DATABASE_URL=database, **settings)
        assert done.returncode == 1
        assert f"no connection to {away}" in done.stderr
        assert f"database {away}/x: Postgres is away" in done.stderr


def test_a_password_that_amqp_does_not_take_is_a_finding_though_the_management_api_answers(
    work: Work,
) -> None:
    parts = urlsplit(work.vhost.amqp_url)
    wrong = parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}").geturl()
    done = check(work, REDRIVE_AMQP_URL=wrong, REDRIVE_MANAGEMENT_URL=work.vhost.management_url)
    assert done.returncode == 1
    assert f"does not let user {parts.username!r} in" in done.stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from celery import Celery\napp = Celery('plain')", "other is a celery.app.base.Celery"),
        ("import no_such_module", "other cannot be loaded: ModuleNotFoundError"),
        ("app = 1", "other is a builtins.int"),
    ],
)
def test_what_is_no_app_of_ours_is_wrong_usage(work: Work, tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "other.py").write_text(source)
    done = check(work, app="other")
    assert done.returncode == 2
    assert done.stderr.startswith(f"workers check: {said}")


def test_a_wrong_setting_or_queue_is_told_by_its_name(work: Work) -> None:
    wrong = check(work, REDRIVE_WORKER_LEASE_S="-1")
    assert wrong.returncode == 2
    assert "REDRIVE_WORKER_LEASE_S" in wrong.stderr
    unknown = check(work, "-Q", "wrok")
    assert unknown.returncode == 1
    assert "queue 'wrok' is not in the topology" in unknown.stderr
    pool = check(work, "-P", "solo")
    assert pool.returncode == 1
    assert "solo" in pool.stderr


def test_settings_that_a_pool_does_not_take_are_found(work: Work, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(
        "from workers.celery_app import Redrive\n"
        "app = Redrive('old')\n"
        "app.conf.worker_max_tasks_per_child = 9\n"
    )
    done = check(work, "-P", "threads", app="old")
    assert done.returncode == 1
    assert "max_tasks_per_child does nothing in a threads pool" in done.stderr
    assert check(work, app="old").returncode == 0
