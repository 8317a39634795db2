"""A poisoned job, bytes that are no message at all, and the way back."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pika

from dev.story.stage import Stage
from dev.story.telling import expect
from dev.waiting import NotYet
from topology.address import AmqpAddress
from topology.declare import connection

GARBAGE = b"\x80\x02}q\x00(no celery message\xff"
PAYMENT = {"payment_id": "payment-5", "amount_cents": 500, "currency": "EUR"}


def poisoned_job(stage: Stage) -> None:
    stage.tell.step("A poisoned job: the third party answers 400, however often it is asked")
    stage.third_party.fail(
        "/payments", {"status": 400, "body": {"detail": "this account is closed"}}, then="repeat"
    )
    made = stage.submit("payments.call_payment_api", PAYMENT, "payment-5")
    job = stage.until(made.job_id, "DEAD")
    stage.tell.seen(f"DEAD, reason {job['reason']}")
    letter = stage.wait("its letter in Postgres", lambda: _letter_of(stage, made.job_id))
    shown = stage.dossier(letter["id"])
    death = shown["deaths"][0]
    expect(
        (death["queue"], death["reason"]) == ("payments", "rejected"),
        "the broker's death record to say: rejected, in payments",
        shown["deaths"],
    )
    stage.tell.seen(
        f"dead-lettered by the broker ({death['queue']}, {death['reason']}) and in Postgres; "
        f"`dlq show {letter['id']} --json` has the traceback:"
    )
    traceback = shown["attempts"][-1]["traceback"] or ""
    expect("Traceback" in traceback and "payments.py" in traceback, "the task's traceback", shown["attempts"])
    stage.tell.quoted("\n".join(traceback.rstrip().splitlines()[-3:]))
    stage.poisoned_job, stage.poisoned_letter = made.job_id, letter["id"]
    _one_alert(stage, letter["id"])


def garbage(stage: Stage) -> None:
    stage.tell.step("Bytes that are no Celery message, published straight to the work queue")
    worker = stage.stack.child("worker-1").pid
    with connection(AmqpAddress.parse(stage.stack.urls.amqp), "redrive-demo-garbage") as opened:
        channel = opened.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(content_type="application/x-python-serialize", delivery_mode=2)
        channel.basic_publish("", "payments", GARBAGE, properties, mandatory=True)
    stage.tell.seen(f"{len(GARBAGE)} bytes confirmed by the broker in queue payments: {GARBAGE!r}")
    letter = stage.wait("their letter in Postgres", lambda: _undecodable(stage))
    digest = hashlib.sha256(GARBAGE).hexdigest()
    expect(letter["body_sha256"] == digest, f"the same bytes (sha256 {digest})", letter)
    stage.tell.seen(
        f"letter {letter['id']}: reason {letter['reason']}, its body's sha256 as published ({digest[:12]}…)"
    )
    made = stage.submit(
        "payments.charge_order", {"order_id": "order-6", "amount_cents": 100, "currency": "EUR"}, "order-6"
    )
    job = stage.until(made.job_id, "SUCCEEDED")
    expect(stage.stack.child("worker-1").pid == worker, "the same worker process", stage.stack.children)
    stage.tell.seen(f"the next job SUCCEEDED on {job['attempts'][-1]['worker']}, still pid {worker}")
    stage.garbage_letter = letter["id"]
    _one_alert(stage, letter["id"])


def fixed_and_replayed(stage: Stage) -> None:
    stage.tell.step("The cause is fixed, and the poisoned job replayed")
    stage.third_party.heal()
    stage.tell.seen("the third party takes payments again")
    letter = str(stage.poisoned_letter)
    done = stage.stack.command("dlq", "replay", letter)
    stage.tell.seen(f"`dlq replay {letter}` exited {done.returncode}:")
    stage.tell.quoted(done.stdout)
    job = stage.until(stage.poisoned_job, "SUCCEEDED")
    expect(job["generation"] == 2, "generation 2 of the job", job)
    state = stage.dossier(stage.poisoned_letter)["state"]
    expect(state == "replayed", "the letter to be replayed", state)
    taken = [each for each in stage.third_party.payments() if each.get("payment_id") == PAYMENT["payment_id"]]
    expect(len(taken) == 1, "one payment at the third party", stage.third_party.payments())
    outcomes = [f"{each['generation']}.{each['attempt']} {each['outcome']}" for each in job["attempts"]]
    stage.tell.seen(
        f"job {stage.poisoned_job[:8]} SUCCEEDED ({', '.join(outcomes)}); letter {letter} is {state}; "
        "one payment taken"
    )


def _letter_of(stage: Stage, job_id: str) -> dict[str, Any]:
    for letter in stage.letters("--queue", "payments"):
        if letter["job_id"] == job_id:
            return letter
    raise NotYet("none of this job")


def _undecodable(stage: Stage) -> dict[str, Any]:
    found = stage.letters("--reason", "undecodable")
    if not found:
        raise NotYet(
            f"no letter with reason undecodable among {[each['reason'] for each in stage.letters()]}"
        )
    return found[0]


def _one_alert(stage: Stage, letter_id: int) -> None:
    """The alert about this letter's group, at the sink, which takes none whose signature is wrong."""

    def arrived() -> dict[str, Any]:
        for each in stage.sink.received():
            if each["body"]["letter_id"] == letter_id:
                return each
        raise NotYet(f"{len(stage.sink.received())} alerts so far, {len(stage.sink.refused())} refused")

    alert = stage.wait(f"the alert about letter {letter_id}", arrived)
    stage.alerts_expected.add(letter_id)
    check_alerts(stage)
    group = alert["body"]["group"]
    stage.tell.seen(
        f"alert {alert['body']['kind']} at the webhook sink, signed right, once: "
        f"{group['reason']} in {group['task'] or group['queue']}"
        + (f" at {group['top_frame']}" if group["top_frame"] else "")
    )


def check_alerts(stage: Stage) -> None:
    """One delivery for each group that was expected to alert, none besides, none refused."""
    letters = sorted(each["body"]["letter_id"] for each in stage.sink.received())
    expect(
        letters == sorted(stage.alerts_expected),
        f"one alert for each of the letters {sorted(stage.alerts_expected)}",
        json.dumps(stage.sink.received()),
    )
    expect(not stage.sink.refused(), "no alert with a wrong signature", stage.sink.refused())
