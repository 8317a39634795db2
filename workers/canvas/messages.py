"""The messages that make a worker see to what follows a job's end. Their ids are fixed: sent twice, they are
one job."""

from __future__ import annotations

import json
from typing import Any

from kombu.utils.json import dumps

from storage.chords import DeadMember
from topology.delivery import Refusal, TaskMessage
from topology.messages import Message, task_message
from workers.canvas.signatures import stable_id

DIED = "redrive.died"
CHORD = "redrive.chord"


def in_chord(task: TaskMessage) -> bool:
    return bool(task.group and task.embed.get("chord"))


def in_canvas(task: TaskMessage) -> bool:
    """Whether anybody is to be told when this job dies."""
    return any(task.embed.get(name) for name in ("errbacks", "chain", "chord"))


def died(task: TaskMessage, generation: int, token: str, reason: str | None = None) -> Message:
    """Tells of a death: errbacks, the rest of the chain, the chord.

    Args:
        reason: of the death of a job that has no row.
    """
    request: dict[str, Any] = {
        "id": task.id,
        "task": task.task,
        "root_id": task.root_id,
        "parent_id": task.parent_id,
        "group": task.group if task.embed.get("chord") else None,
        "retries": task.retries,
        "reason": reason,
        "errbacks": task.embed.get("errbacks"),
        "chain": task.embed.get("chain"),
    }
    try:
        # Errbacks get the failed request, with its arguments; kombu's JSON has revived some of them.
        full = request | {"args": task.args, "kwargs": task.kwargs}
        plain = json.loads(dumps(full, allow_nan=False))
    except ValueError:
        plain = json.loads(dumps(request, allow_nan=False))
    return _message(task.id, generation, plain, token)


def died_unread(
    refusal: Refusal, group: str | None, generation: int, token: str, reason: str
) -> Message | None:
    """The same for a message that cannot be read: what its headers tell. None if they tell nothing."""
    if not refusal.id or not group:
        return None
    request = {"id": refusal.id, "task": refusal.task or "", "group": group, "reason": reason}
    return _message(refusal.id, generation, request, token)


def member_died(member: DeadMember, token: str) -> Message:
    """The same for a member whose message is lost: it fails its chord, and no more is known of it."""
    request = {"id": member.id, "task": "", "group": member.group_id}
    kwargs = {"request": request, "generation": member.generation}
    id_ = stable_id(DIED, member.id, member.generation, member.group_id)
    return task_message(id_, DIED, kwargs, token=token)


def chord(group_id: str, token: str) -> Message:
    """Sends the body of a chord whose members have all succeeded."""
    return task_message(stable_id(CHORD, group_id), CHORD, {"group_id": group_id}, token=token)


def _message(job_id: str, generation: int, request: dict[str, Any], token: str) -> Message:
    kwargs = {"request": request, "generation": generation}
    return task_message(stable_id(DIED, job_id, generation), DIED, kwargs, token=token)
