"""docs/adopt.md, done: every command of it, in its order, with what it prints."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.adopt.test_before_and_after import CAME_BACK
from tests.support.databases import Database
from tests.support.processes import ROOT, Process, Processes
from tests.support.shop import Shop, adopted, plain
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology import exits

BOOK = ROOT / "docs" / "adopt.md"
SET_UP = "Install and set up: 10 minutes"
NEW_NAMES = "Change over with new names: 15 minutes"
SAME_NAMES = "Change over with the same names: 15 minutes"
CODES = {"topology plan": exits.CONFLICT}


@dataclass(frozen=True)
class Command:
    line: str
    output: tuple[str, ...]


def commands(section: str) -> list[Command]:
    """The lines that begin with `$ `, each with the output below it."""
    text = BOOK.read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^    \$ (.*)\n((?:    (?!\$ ).*\n)*)", body, re.MULTILINE)
    return [Command(line, tuple(each[4:] for each in output.splitlines())) for line, output in found]


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, vhosts, databases, widths of columns."""
    line = re.sub(r"vhost \S+?(?=[: ]|$)", "vhost", line)
    line = re.sub(r"(127\.0\.0\.1:\d+)/[\w-]+", r"\1", line)
    return re.sub(r"\s+", " ", re.sub(r"\d+", "0", line)).strip()


def follow(shop: Shop, section: str) -> Iterator[tuple[Command, Process | None]]:
    """Run the section's commands; a worker and a consumer go on."""
    for command in commands(section):
        program, *arguments = shlex.split(command.line)
        if program == "celery":
            assert arguments == ["-A", "shop.app", "worker"]
            yield command, shop.worker()
        elif command.line == "dlq consume":
            consumer = shop.processes.start_module("dlq", "dlq_consumer.cli", "consume", env=shop.environment)
            consumer.wait_for_log("draining redrive.unrouted.dlq")
            yield command, consumer
        else:
            if command.line.startswith("topology migrate"):
                arguments += ["--quiet", "2"]  # nobody publishes here; 12 s by default
            said = shop.command(program, *arguments, code=CODES.get(command.line, exits.DONE))
            printed = [shape(line) for line in said.splitlines()]
            for line in command.output:
                if line != "…":
                    assert shape(line) in printed, (command.line, said)
                    del printed[: printed.index(shape(line)) + 1]
            yield command, None


def followed(shop: Shop, section: str) -> list[Process]:
    return [process for _, process in follow(shop, section) if process is not None]


def nightly(shop: Shop) -> None:
    came_back = json.loads(shop.python("-m", "shop.nightly"))
    assert {name: came_back[name] for name in CAME_BACK} == CAME_BACK


def test_no_command_of_the_book_is_left_out() -> None:
    text = BOOK.read_text(encoding="utf-8")
    run = [command.line for section in (SET_UP, NEW_NAMES, SAME_NAMES) for command in commands(section)]
    assert len(run) == text.count("    $ ") == 12


def test_with_new_names_old_and_new_workers_run_side_by_side(
    tmp_path: Path, vhost: Vhost, empty_database: Database, processes: Processes
) -> None:
    old = plain(tmp_path, vhost, processes)
    new = adopted(tmp_path, vhost, empty_database, processes, names="shop.{}")
    old_worker = old.worker()
    followed(new, SET_UP)
    followed(new, NEW_NAMES)

    nightly(new)
    nightly(old)

    def of_which(shop: Shop) -> int:
        return shop.wrote(what="prerun", task="shop.tasks.orders.price")

    assert (of_which(old), of_which(new)) == (8, 8), "each runs its own"
    assert old_worker.terminate(60) == 0
    assert vhost.depths(["orders", "mails", "shop.orders.dlq", "shop.mails.dlq"]) == dict.fromkeys(
        ["orders", "mails", "shop.orders.dlq", "shop.mails.dlq"], 0
    )


PUBLISH_OLD = """
from shop.app import app
from shop.tasks import orders, mails
orders.price.apply_async((1, 100), task_id="old-1")
mails.send.apply_async(("c@example.org", "s"), task_id="old-mail")
orders.price.apply_async((1, 100), task_id="old-pickle", serializer="pickle")
app.conf.task_protocol = 1
del app.amqp.__dict__["create_task_message"]
orders.price.apply_async((2, 100), task_id="old-protocol-1")
"""
LATER_OLD = """
from shop.tasks import orders
orders.price.apply_async((5, 100), countdown=1000, task_id="old-later")
"""
DECLARES = 'task_queues=[Queue("orders"), Queue("mails")],'
WENT_BACK = """task_queues=[
        Queue(name, no_declare=True, queue_arguments={"x-queue-type": "quorum"})
        for name in ("orders", "mails")
    ],"""


def test_with_the_same_names_what_waits_is_moved_and_run_and_there_is_a_way_back(
    tmp_path: Path, vhost: Vhost, database: Database, processes: Processes
) -> None:
    old = plain(tmp_path, vhost, processes)
    new = adopted(tmp_path, vhost, database, processes)
    old_worker = old.worker()
    old.python("-c", LATER_OLD)
    old_worker.wait_for_log("[old-later] received")
    assert old_worker.terminate(60) == 0, "it gives back what it held"
    old.python("-c", PUBLISH_OLD)
    state = "select max(state) from redrive.jobs where id = $1"

    for command, process in follow(new, SAME_NAMES):
        if process is not None and command.line.startswith("celery"):
            worker = process
        if command.line == "dlq consume":
            for job in ("old-1", "old-mail", "old-protocol-1"):
                eventually(lambda job=job: database.value(state, job) == "SUCCEEDED", 30, job)  # type: ignore[misc]
            eventually(lambda: database.value("select count(*) from redrive.dead_letters"), 30, "the letter")

    assert (old.wrote(what="mail"), new.wrote(what="mail")) == (0, 1)
    waiting = {step: depth for step, depth in vhost.depths(ladder()).items() if depth}
    assert sum(waiting.values()) == 1, "the job with the delay is on the ladder, not in memory"

    assert worker.terminate(60) == 0
    app = old.code / "shop" / "app.py"
    assert WENT_BACK in BOOK.read_text(encoding="utf-8")
    app.write_text(app.read_text().replace(DECLARES, WENT_BACK))
    old.worker()
    nightly(old)


def ladder() -> list[str]:
    steps = ("250ms", "500ms", "1s", "2s", "4s", "8s", "16s", "32s", "64s", "128s", "256s", "512s")
    return [f"orders.retry.{step}" for step in steps]
