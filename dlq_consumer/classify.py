"""From a reading and the job's row to the letter that is stored: reason, origin, group. Pure."""

from __future__ import annotations

import hashlib
from datetime import datetime

from dlq_consumer.fingerprint import group_of, top_frame
from dlq_consumer.reading import Reading
from storage.intake import JobFacts
from storage.new_letters import NewLetter
from storage.text import fits, safe_text
from topology.channel import Delivery
from topology.deaths import target_of
from topology.delivery import Refusal, TaskMessage
from topology.names import UNROUTED_DLQ
from topology.spec import Topology

NAME_CHARACTERS = 255
DETAIL_CHARACTERS = 2_000
UNRECORDED = (
    "a consumer rejected it and recorded nothing; its log tells why: mostly no such task is registered there"
)
_NO_TASK = {"undecodable", "malformed"}
# What the broker itself writes into `x-death`. https://www.rabbitmq.com/docs/dlx
_BROKER_REASONS = {"expired", "maxlen", "delivery_limit"}


def classify(
    reading: Reading, job: JobFacts | None, *, topology: Topology | None, now: datetime
) -> NewLetter:
    """The letter to store.

    Args:
        job: the row of the letter's job, None when there is none.
        topology: None for a letter of another vhost, which has no job of ours.
        now: stands for the time of death where the history does not tell it.
    """
    if reading.fault is not None:
        return quarantined(reading, f"its properties cannot be taken apart: {reading.fault}", now=now)
    delivery = reading.delivery
    target = target_of(topology, reading.dlq, reading.history, delivery.routing_key)
    queue = target or (reading.history[0].queue if reading.history else reading.dlq)
    ours = topology is not None and any(known.name == queue for known in topology.queues)
    namesake = job if job is not None and job.type != reading.task else None
    if not _is_of_this_death(reading, job):
        job = None
    reason, detail = _reason(reading, job, namesake, ours=ours)
    exception_type = _name(job.exception_type) if job else None
    task = _name(reading.task)
    return NewLetter(
        dlq=reading.dlq,
        queue=safe_text(queue, NAME_CHARACTERS),
        # A replay is sent in this vhost, where a queue of that name would be another one.
        target=target if topology is not None and target and fits(target, NAME_CHARACTERS) else None,
        reason=reason,
        detail=safe_text(detail, DETAIL_CHARACTERS) if detail else None,
        state="open",
        properties=delivery.properties,
        body=delivery.body,
        exchange=safe_text(delivery.exchange, 4 * NAME_CHARACTERS),
        routing_key=safe_text(delivery.routing_key, 4 * NAME_CHARACTERS),
        body_sha256=reading.body_sha256,
        identity=reading.identity,
        has_identity=reading.has_identity,
        message_id=_name(reading.message_id),
        job_id=None if namesake or topology is None else reading.job_id,
        generation=reading.attempt.generation if reading.attempt else None,
        attempt=reading.attempt.attempt if reading.attempt else None,
        task=task,
        exception_type=exception_type,
        replay_token=_name(reading.replay_token),
        dead_at=_died_at(reading) or now,
        group=group_of(
            queue=safe_text(queue, NAME_CHARACTERS),
            task=task,
            reason=reason,
            exception_type=exception_type,
            frame=top_frame(job.traceback, task) if job and job.traceback else None,
        ),
        canvas=ours and _in_canvas(reading.checked),
        redacted=reading.redacted,
    )


def quarantined(reading: Reading, why: str, *, now: datetime) -> NewLetter:
    """The letter as bytes and nothing else: for one that cannot be stored, or not be understood, as it is."""
    bare = quarantined_bytes(reading.dlq, reading.delivery, reading.identity, why, now=now)
    return bare._replace(redacted=reading.redacted)


def quarantined_bytes(dlq: str, delivery: Delivery, identity: bytes, why: str, *, now: datetime) -> NewLetter:
    """As `quarantined`, for a delivery of which there is no reading."""
    return NewLetter(
        dlq=dlq, queue=dlq, target=None, reason="unknown", detail=safe_text(why, DETAIL_CHARACTERS),
        state="quarantined", properties=delivery.properties, body=delivery.body, exchange="", routing_key="",
        body_sha256=hashlib.sha256(delivery.body).digest(), identity=identity,
        has_identity=False, message_id=None, job_id=None, generation=None, attempt=None,
        task=None, exception_type=None, replay_token=None, dead_at=now,
        group=group_of(queue=dlq, task=None, reason="unknown", exception_type=None, frame=None),
    )  # fmt: skip


def _reason(
    reading: Reading, job: JobFacts | None, namesake: JobFacts | None, *, ours: bool
) -> tuple[str, str | None]:
    if reading.dlq == UNROUTED_DLQ:
        return "unroutable", f"no queue took it at exchange {reading.delivery.exchange!r}"
    if not reading.history:
        return "foreign", "it has no death history: someone put it into this queue"
    death = reading.history[0]
    if death.reason in _BROKER_REASONS:
        return death.reason, death.words
    if death.reason != "rejected":
        return "unknown", death.words
    if job is not None:
        return job.reason or "unknown", None
    if ours and isinstance(reading.checked, Refusal):
        # The guard rejects without a word; the same check of the same bytes tells what it found.
        return reading.checked.reason, reading.checked.detail
    if ours and namesake is not None:
        return "malformed", f"its id is that of a job of task {namesake.type!r}"
    return "rejected", UNRECORDED if ours else None


def _in_canvas(checked: TaskMessage | Refusal | None) -> bool:
    """Whether other jobs may wait for this one; of a message that was refused a worker finds out."""
    if isinstance(checked, TaskMessage):
        return any(checked.embed.get(name) for name in ("errbacks", "chain", "chord"))
    return checked is not None and bool(checked.id)


def _is_of_this_death(reading: Reading, job: JobFacts | None) -> bool:
    """Whether the row tells about this letter: its job is DEAD, in the generation that the message is of.

    What is no task message never was that job, whatever id it bears, nor is one of another task.
    """
    if isinstance(reading.checked, Refusal) and reading.checked.reason in _NO_TASK:
        return False
    generation = reading.attempt.generation if reading.attempt else 1
    return (
        job is not None and job.type == reading.task and job.state == "DEAD" and job.generation == generation
    )


def _died_at(reading: Reading) -> datetime | None:
    # An entry's time is that of its first death; of a later one it says nothing.
    return reading.history[0].time if reading.history and reading.history[0].count == 1 else None


def _name(text: str | None) -> str | None:
    return safe_text(text, NAME_CHARACTERS) if text else None
