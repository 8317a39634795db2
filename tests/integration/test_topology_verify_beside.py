"""`topology verify` beside waiting jobs, absent processes, forged probes; and interrupted."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.databases import Database
from tests.support.processes import Processes, console_script
from tests.support.verifying import VERIFY, Verifying
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import DLQ, QUEUE
from topology.headers import PROBE, PUBLISH
from topology.management import Management
from topology.messages import task_message
from topology.names import UNROUTED_DLQ
from topology.probe import Probe, probe_message
from topology.stuck import stuck_letters
from topology.wire import Properties, RawProperties, split

JOBS = 1_000
UUID_ = UUID("5f1c64b8-7a5d-4a39-9df7-3f36c4d6b8a1")
FROM_QUEUE, FROM_EXCHANGE, FROM_LADDER = (
    "work → work.dlx → work.dlq",
    "work.dlx → work.dlq",
    "work.due → work",
)


@pytest.fixture
def idle(vhost: Vhost, database: Database, processes: Processes) -> Verifying:
    """Nothing runs yet."""
    return Verifying(vhost, database, processes)


def wait_in_line(live: Verifying, **kwargs: Any) -> list[str]:
    ids = [f"job-{number:04}" for number in range(JOBS)]
    with live.vhost.channel() as channel:
        channel.confirm_delivery()
        for id_ in ids:
            message = task_message(id_, "t.mark", {"key": id_, **kwargs})
            channel.basic_publish("", QUEUE, message.body, RawProperties(message.properties))
    return ids


def test_a_thousand_jobs_that_no_worker_takes_wait_on_in_their_order(idle: Verifying) -> None:
    ids = wait_in_line(idle)
    idle.start_drainer()
    rows = idle.rows()

    checks = idle.checks()

    unprobed = {path: check["reason"] for path, check in checks.items() if check["status"] == "not_probed"}
    no_worker = "no worker consumes work, so the probe would stay there"
    assert unprobed[FROM_QUEUE] == unprobed[FROM_LADDER] == no_worker
    assert checks[FROM_EXCHANGE]["status"] == "ok"
    assert checks["work.retry.3200ms → work.due"]["status"] == "ok"
    assert idle.messages() == {QUEUE: JOBS}
    assert [split(raw.raw).text("message_id") for raw, _ in all_of(idle, QUEUE)] == ids
    assert idle.rows() == rows


def test_a_thousand_jobs_at_work_run_in_their_order_and_leave_no_probe(
    idle: Verifying, broker_release: tuple[int, int], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    ids = wait_in_line(idle, path=str(ran), seconds=0.01)
    idle.start_drainer()
    idle.start(concurrency=1)

    checks = idle.checks()
    waited = idle.depth(QUEUE)

    assert waited > 0, "jobs waited throughout"
    if broker_release >= (4, 0):
        assert checks[FROM_QUEUE]["status"] == checks[FROM_LADDER]["status"] == "ok", checks
    else:
        assert checks[FROM_QUEUE]["status"] == "not_probed"
        assert "jobs wait in work, and a probe would wait behind them" in checks[FROM_QUEUE]["reason"]
    eventually(lambda: ran.exists() and len(ran.read_text().splitlines()) >= JOBS, 200, "all have run")
    assert [line.split()[0] for line in ran.read_text().splitlines()] == ids
    idle.until_settled()
    assert idle.messages() == {}
    rows = idle.rows()
    assert (rows["jobs"], rows["dead_letters"], rows["alerts"]) == (JOBS, 0, 0)


def all_of(live: Verifying, queue: str) -> list[tuple[RawProperties, bytes]]:
    taken = []
    with live.vhost.channel() as channel:
        while (found := channel.basic_get(queue, auto_ack=True))[0] is not None:
            taken.append(found[1:])
    return taken


def test_without_a_dead_letter_consumer_no_probe_is_sent_its_way(idle: Verifying) -> None:
    idle.start()

    checks = idle.checks()

    assert checks[FROM_QUEUE]["status"] == checks[FROM_EXCHANGE]["status"] == "not_probed"
    assert checks[FROM_QUEUE]["fix"] == "Run: dlq consume"
    assert checks["work.retry.3200ms → work.due"]["status"] == "ok"
    assert idle.messages() == {}


def test_dead_letters_that_cannot_leave_are_counted_with_their_cause(idle: Verifying) -> None:
    idle.delete("exchanges", "work.dlx")
    for body in (b"1", b"2", b"3"):
        idle.publish(body)
    with idle.vhost.channel() as channel:
        for _ in range(3):
            tag = eventually(lambda: getattr(channel.basic_get(QUEUE)[0], "delivery_tag", None), 5, "a job")
            channel.basic_reject(tag, requeue=False)

    def stuck() -> bool:
        return (idle.vhost.queue(QUEUE) or {}).get("messages_dlx") == 3

    eventually(stuck, 15, "the broker counts them")
    failures = idle.failures()

    assert failures["queue work: dead letters that cannot leave it (messages_dlx)"].startswith(
        "3 wait; exchange work.dlx or what is bound to it is not as declared, see there. Mend that"
    )
    assert "exchange work.dlx" in failures


def test_someone_who_takes_retries_off_the_ladder_is_named(idle: Verifying) -> None:
    step = "work.retry.800ms"
    with idle.vhost.channel() as channel:
        channel.basic_consume(step, lambda *_: None)
        eventually(lambda: (idle.vhost.queue(step) or {}).get("consumers") == 1, 15, "it is counted")

        failures = idle.failures()

    assert failures[f"queue {step}"].startswith("a consumer takes retries out of the ladder")
    assert f"s: queue {step}: a consumer takes retries" in failures[f"{step} → work.due"]


def test_another_program_that_takes_letters_is_named(idle: Verifying) -> None:
    idle.start_drainer()
    with idle.vhost.channel() as channel:
        channel.basic_consume(DLQ, lambda *_: None)

        failures = idle.failures()

    assert f"2 consumers take letters from {DLQ}" in failures[FROM_EXCHANGE]


def forged() -> list[tuple[Properties, bytes]]:
    """None of these is a probe, and each is somebody's message. (RabbitMQ 4 drops a header's second copy.)"""
    sent = split(probe_message(Probe(UUID_, "amq.gen-x")).properties)
    job = task_message("job-1", "t.gone", {})
    return [
        (sent, b"not empty"),
        (sent.with_header(PROBE, "no uuid").with_header(PUBLISH, "no uuid"), b""),
        (sent._replace(reply_to=b"work"), b""),
        (sent._replace(message_id=b"mine"), b""),
        (split(job.properties).with_header(PROBE, str(UUID_)), job.body),
        (split(job.properties).with_header(PROBE, str(UUID_)), b""),
    ]


def test_what_only_looks_like_a_probe_is_a_letter_as_ever(idle: Verifying) -> None:
    idle.start_both()
    for made, body in forged():
        idle.publish(body, RawProperties(made.encode()))

    eventually(lambda: idle.rows()["dead_letters"] == len(forged()), 20, "all are letters")

    letters = idle.database.fetch("select body, reason from redrive.dead_letters")
    assert sorted(bytes(letter["body"]) for letter in letters) == sorted(body for _, body in forged())
    assert {letter["reason"] for letter in letters} <= {"undecodable", "malformed", "unknown_task"}
    idle.until_settled()
    assert idle.messages() == {}


def test_a_job_that_bears_the_header_runs(idle: Verifying) -> None:
    idle.start_both()
    job = task_message("job-2", "t.add", {"x": 1, "y": 2})

    idle.publish(job.body, RawProperties(split(job.properties).with_header(PROBE, str(UUID_)).encode()))

    assert idle.result("job-2") == 3


def test_a_probe_whose_sender_is_gone_is_acked_and_forgotten(idle: Verifying) -> None:
    idle.start()
    drainer = idle.start_drainer()
    probe = probe_message(Probe(UUID_, "amq.gen-nobody"))
    rows = idle.rows()

    idle.publish(probe.body, RawProperties(probe.properties))
    idle.vhost.publish(UNROUTED_DLQ, probe.body, RawProperties(probe.properties))

    eventually(lambda: drainer.log.count("its sender is gone") == 2, 15, "both have arrived")
    idle.until_settled()
    assert idle.messages() == {}
    assert idle.rows() == rows


def test_a_worker_that_does_not_move_is_told_of_and_nothing_stays_when_it_does(idle: Verifying) -> None:
    worker = idle.start(concurrency=1)
    idle.start_drainer()
    worker.send(signal.SIGSTOP)
    try:
        failures = idle.failures()
    finally:
        worker.send(signal.SIGCONT)

    assert failures.keys() <= {FROM_QUEUE, FROM_LADDER}, failures  # what it has not got expires
    assert "did not come out within" in failures[FROM_QUEUE]
    assert "Are all consumers of work workers of this release" in failures[FROM_QUEUE]
    idle.until_settled()
    eventually(lambda: idle.messages() == {}, 10, "nothing is left")
    assert idle.rows()["dead_letters"] == 0


@pytest.mark.timeout(420)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_interrupted_it_leaves_only_what_goes_by_itself(
    idle: Verifying, number: signal.Signals, code: int
) -> None:
    idle.start_both()
    arguments = console_script(VERIFY, "verify", "--wait", "4")
    process = idle.processes.start("verify", arguments, idle.settings)
    late = "work.retry.12800ms"
    eventually(lambda: idle.messages().get(late), 20, "its probes are on the ladder")

    process.send(number)

    assert process.wait() == code
    if number == signal.SIGINT:
        assert "interrupted: " in process.log
        assert "as each comes out the dead-letter consumer takes it" in process.log
    eventually(lambda: idle.messages() == {}, 10, "the last has come out, and was taken")
    eventually(lambda: own_queues(idle) == [], 10, "its own queues are gone")
    assert idle.rows()["dead_letters"] == 0
    if (
        number == signal.SIGKILL
    ):  # rarely a probe was on its way into the queue that went: sent again after 180 s
        with Management(idle.vhost.management_url) as management:
            eventually(lambda: not stuck_letters(management, idle.vhost.vhost), 240, "none is held back")
    assert [check for check in idle.checks().values() if check["status"] == "failed"] == []


def own_queues(idle: Verifying) -> list[str]:
    answer = idle.vhost.management.get(f"/api/queues/{idle.vhost.vhost}").json()
    return [queue["name"] for queue in answer if queue["name"].startswith("amq.gen-")]


def test_several_run_side_by_side(idle: Verifying) -> None:
    idle.start_both()

    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: idle.checks(), range(3)))

    assert [check for run in runs for check in run.values() if check["status"] == "failed"] == []
    assert idle.messages() == {}


def test_it_says_what_it_lacks(idle: Verifying) -> None:
    nowhere = "http://guest:guest@127.0.0.1:1"
    amqp = idle.verify(REDRIVE_MANAGEMENT_URL=idle.vhost.amqp_url.replace("amqp://", "http://"))
    away = idle.verify(REDRIVE_MANAGEMENT_URL=nowhere)
    refused = idle.verify(REDRIVE_MANAGEMENT_URL=idle.vhost.management_url.replace("//", "//no:body@", 1))
    no_broker = idle.verify(REDRIVE_AMQP_URL=f"amqp://127.0.0.1:1/{idle.vhost.vhost}")
    no_queue = idle.verify("--queue", "nobodys")
    idle.settings.pop("REDRIVE_MANAGEMENT_URL")
    unset = idle.verify()

    assert unset.returncode == no_queue.returncode == 2
    assert "REDRIVE_MANAGEMENT_URL is not set" in unset.stderr
    assert "no work queue 'nobodys'; there are: work" in no_queue.stderr
    assert {done.returncode for done in (amqp, away, refused, no_broker)} == {1}
    assert "does not speak HTTP" in amqp.stderr or "no answer from http://" in amqp.stderr
    assert "nothing answers at http://127.0.0.1:1" in away.stderr
    assert "topology verify: " in refused.stderr
    assert "topology verify: " in no_broker.stderr
    assert "Traceback" not in "".join(d.stderr for d in (amqp, away, refused, no_broker, unset, no_queue))
