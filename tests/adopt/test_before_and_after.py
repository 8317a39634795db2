"""A Celery shop as people write it: adopted, its good jobs do the same, and its bad ones are kept."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pika import BasicProperties

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.shop import PATCH, TOPOLOGY, Shop, adopted, copy, plain, python
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

CAME_BACK = {
    "reserve": {"order": "o-1", "retries": 1},
    "charge": 500,
    "report": "report of 2026-11-30",
    "by name": 600,
    "later": 300,
    "at": 400,
    "chain": 1100,
    "group": [0, 100, 200],
    "linked": 700,
}
# What its jobs did, and how often its signal handlers were called for each task.
WRITTEN = (
    ({"what": "reserved", "order": "o-1"}, 1),
    ({"what": "charged", "order": "o-2", "cents": 500}, 1),
    ({"what": "noted", "order": "o-3", "value": 700}, 1),
    ({"what": "mail", "to": "ada@example.org", "subject": "reminder"}, 1),
    ({"what": "mail", "to": "bob@example.org", "subject": "hello"}, 1),
    ({"what": "report", "day": "2026-11-30"}, 1),
    ({"what": "prerun", "task": "shop.tasks.orders.price"}, 8),
    ({"what": "postrun", "task": "shop.tasks.orders.price", "state": "SUCCESS"}, 8),
    ({"what": "postrun", "task": "shop.tasks.orders.charge", "state": "RETRY"}, 1),
    ({"what": "postrun", "task": "shop.tasks.orders.charge", "state": "SUCCESS"}, 1),
    ({"what": "failure"}, 0),
)
# Its unit tests need the settings, and no server behind them.
NOWHERE = {
    "REDRIVE_AMQP_URL": "amqp://localhost:9/%2F",
    "REDRIVE_DATABASE_URL": "postgresql://localhost:9/none",
    "REDRIVE_TOPOLOGY": TOPOLOGY,
}
UNIT_TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=.", "shop")
NO_JOB = b"\x80\x02}q\x00(no job\xff"


def test_the_patch_touches_the_app_module_and_the_base_class_alone() -> None:
    patch = PATCH.read_text(encoding="utf-8")
    touched = re.findall(r"^\+\+\+ b/(.*)$", patch, re.MULTILINE)
    changed = [line for line in patch.splitlines() if re.match(r"[+-](?![+-])", line)]
    assert touched == ["shop/app.py", "shop/base.py"]
    assert len(changed) < 20


@pytest.mark.parametrize("settings", [{}, NOWHERE], ids=["plain", "adopted"])
def test_its_own_unit_tests_pass(tmp_path: Path, settings: dict[str, str]) -> None:
    copy(tmp_path, patched=bool(settings))
    said = python(tmp_path, UNIT_TESTS, settings)
    assert "6 passed" in said


def good_day(shop: Shop) -> None:
    came_back = json.loads(shop.python("-m", "shop.nightly"))
    routed = came_back.pop("remind")
    assert came_back == CAME_BACK
    assert routed == "mails", "its routes hold"
    eventually(lambda: shop.wrote(what="mail") == 2, 30, "the mails are sent")

    def all_is_written() -> bool:
        # A task's signals come behind its result.
        assert [(line, shop.wrote(**line)) for line, _ in WRITTEN] == list(WRITTEN)
        return True

    eventually(all_is_written, 30, "all is written")


def bad_day(shop: Shop) -> None:
    """A bug, a job that takes its process down, bytes that are no job; its hooks are called all the same."""
    shop.vhost.publish("orders", NO_JOB, BasicProperties(content_type="application/octet-stream"))
    shop.python("-m", "shop.trouble")
    eventually(lambda: shop.wrote(what="alarm", error="KeyError"), 30, "the errback is called")
    eventually(lambda: shop.wrote(what="on_failure", error="KeyError") == 1, 30, "its hook is called")
    crashed = {"what": "failure", "task": "shop.tasks.orders.crash", "error": "WorkerLostError"}
    eventually(lambda: shop.wrote(**crashed) == 1, 60, "the crash is told")


def test_on_plain_celery_its_bad_jobs_are_lost(tmp_path: Path, vhost: Vhost, processes: Processes) -> None:
    shop = plain(tmp_path, vhost, processes)
    worker = shop.worker()
    good_day(shop)
    bad_day(shop)
    assert worker.terminate(60) == 0
    assert shop.wrote(what="crashing") == 1
    there = vhost.management.get(f"/api/queues/{vhost.vhost}").raise_for_status().json()
    lasting = [queue["name"] for queue in there if queue["durable"] and not queue["auto_delete"]]
    assert vhost.depths(lasting) == {"orders": 0, "mails": 0}


def test_adopted_it_does_the_same_and_its_bad_jobs_are_dead_letters_with_their_reasons(
    tmp_path: Path, vhost: Vhost, database: Database, processes: Processes
) -> None:
    shop = adopted(tmp_path, vhost, database, processes)
    shop.command("topology", "apply")
    worker = shop.worker()
    good_day(shop)
    bad_day(shop)
    assert worker.terminate(60) == 0
    assert shop.wrote(what="crashing") == 3, "REDRIVE_WORKER_CRASH_BOUND"
    assert vhost.depths(["orders", "mails"]) == {"orders": 0, "mails": 0}

    processes.start_module("dlq", "dlq_consumer.cli", "consume", env=shop.environment)
    rows = "select reason, task, body from redrive.dead_letters order by reason"
    eventually(lambda: len(database.fetch(rows)) == 3, 30, "three letters")
    assert [(letter["reason"], letter["task"]) for letter in database.fetch(rows)] == [
        ("exception", "shop.tasks.orders.broken"),
        ("undecodable", None),
        ("worker_lost", "shop.tasks.orders.crash"),
    ]
    assert database.fetch(rows)[1]["body"] == NO_JOB
    # Twelve of cron's, two mails, a callback, a chain's second step; the errback is a job too.
    states = "select state, count(*) as jobs from redrive.jobs group by state"
    assert {row["state"]: row["jobs"] for row in database.fetch(states)} == {"SUCCEEDED": 17, "DEAD": 2}


OVERRIDES = (
    ("shop/base.py", "    abstract = True", "    abstract = True\n    acks_on_failure_or_timeout = True"),
    ("shop/tasks/orders.py", "@shared_task\ndef price", "@shared_task(acks_late=False)\ndef price"),
    ("shop/tasks/orders.py", "max_retries=5", "max_retries=None"),
    ("shop/tasks/reports.py", '"reports.nightly"', '"reports.nightly"\n    time_limit = 7200'),
    ("shop/tasks/mails.py", "expires=3600", "expires=3600, serializer='pickle'"),
    ("shop/app.py", '"reports.*": {"queue": "mails"}', '"reports.*": {"queue": "reprots"}'),
    ("shop/app.py", "app.conf.update(", "app.conf.update(\n    task_publish_retry=False,"),
    (
        "shop/app.py",
        "app.conf.update(",
        "app.conf.update(\n    task_annotations={'*': {'mandatory': 0}},",
    ),
)
REFUSED = (
    "task shop.tasks.orders.charge: acks_on_failure_or_timeout is on",
    "task reports.nightly: acks_on_failure_or_timeout is on",
    "task shop.tasks.orders.price: acks_late is off",
    "task shop.tasks.orders.charge: max_retries is None",
    "task reports.nightly: its queue is not in the topology",
    "task shop.tasks.mails.send: serializer is 'pickle'",
    "task_routes sends 'reports.*' to queue 'reprots', which is not in the topology",
    "task_publish_retry is off",
    "task shop.tasks.orders.note: mandatory is off",
)


def test_adopted_it_is_refused_for_what_its_tasks_override(
    tmp_path: Path, vhost: Vhost, database: Database, processes: Processes
) -> None:
    shop = adopted(tmp_path, vhost, database, processes)
    for file, old, new in OVERRIDES:
        text = (shop.code / file).read_text()
        assert old in text
        (shop.code / file).write_text(text.replace(old, new))
    checked = shop.command("workers", "check", "-A", "shop.app", code=1)
    worker = shop.worker(ready=False)
    assert worker.wait(60) == 1
    for finding in REFUSED:
        assert f"\n{finding}" in checked
        assert finding in worker.log
    assert "Traceback" not in worker.log
