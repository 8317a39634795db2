"""The tasks of our own that see to what follows a job's end. They are jobs like any other: claimed, run once,
retried, dead-lettered."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from celery import states
from celery.app.task import Context
from kombu.exceptions import OperationalError
from kombu.utils.json import dumps, loads

from storage import chords, results
from storage.results import Ended
from workers import loop
from workers.canvas.messages import CHORD, DIED
from workers.canvas.signatures import Leaf, Signature, failing, leaves, with_ids
from workers.results.exceptions import chord_error, rebuilt

if TYPE_CHECKING:
    from workers.celery_app import Redrive

# They publish and look things up; errbacks that are plain functions run in them, too.
OPTIONS: dict[str, Any] = {
    "bind": True, "shared": False, "ignore_result": True, "soft_time_limit": 50, "time_limit": 60,
    "autoretry_for": (OperationalError,), "retry_backoff": True, "max_retries": 10,
}  # fmt: skip


def register(app: Redrive) -> None:
    """Give every `Redrive` app the two tasks."""

    @app.task(name=DIED, **OPTIONS)
    def died(self: Any, request: dict[str, Any], generation: int) -> str:
        return tell_of_death(self.app, request, generation)

    @app.task(name=CHORD, **OPTIONS)
    def chord(self: Any, group_id: str) -> str:
        return send_body(self.app, group_id)


def tell_of_death(app: Any, request: dict[str, Any], generation: int) -> str:
    """Call the errbacks of a dead job, and fail what cannot run now: the rest of its chain, its chords.

    Whatever is published has an id that follows from the job's id and generation: a second run of this
    changes nothing. Only errbacks that are plain functions are called again in one.
    """
    job_id = request["id"]
    death = loop.ask(app, lambda connection: results.death(connection, job_id, generation))
    if death is not None and death.generation <= generation and death.state not in ("DEAD", "CANCELLED"):
        return f"not dead but {death.state}"
    ended = death.ended if death is not None else Ended(request.get("reason"), None, None, None)
    error = rebuilt(app.backend, ended)
    errbacks = [
        with_ids(errback, job_id, generation, "errback", place)
        for place, errback in enumerate(request.get("errbacks") or ())
    ]
    if errbacks:
        context = Context({"delivery_info": {}} | request, errbacks=errbacks, called_directly=False)
        app.backend.call_errbacks(context, error, ended.traceback)
    rest = [leaf for signature in request.get("chain") or () for leaf in leaves(signature)]
    if rest:
        ids = [leaf.id for leaf in rest]
        loop.ask(app, lambda connection: chords.block(connection, ids, job_id, chord=False))
        _store_failures(app, ids, error)
    failed = _fail_chords(app, [Leaf(job_id, request.get("group")), *rest], job_id, error)
    return f"errbacks: {len(errbacks)}, chords: {failed}"


def _fail_chords(app: Any, doomed: list[Leaf], cause: str, error: BaseException) -> int:
    """Fail the chord of each of these; its body may be a member of the next one."""
    left, seen = deque(doomed), set[str]()
    while left:
        leaf = left.popleft()
        if leaf.group is None or leaf.group in seen:
            continue
        group, member = leaf.group, leaf.id
        found = loop.ask(app, lambda connection: chords.fail(connection, group, member))  # noqa: B023
        if found is None:
            continue
        seen.add(group)
        body, ours = loads(found[0].decode()), found[1]
        blocked = list(leaves(body))
        ids = [each.id for each in blocked]
        loop.ask(app, lambda connection: chords.block(connection, ids, cause, chord=True))  # noqa: B023
        failure = chord_error(member, error)
        _store_failures(app, ids, failure)
        if ours:
            _call_errbacks_of_body(app, body, failure)
        left.extend(blocked)
    return len(seen)


def _store_failures(app: Any, job_ids: Sequence[str], error: BaseException) -> None:
    """In a result backend of the user's; ours derives them."""
    for job_id in job_ids:
        app.backend.store_result(job_id, error, states.FAILURE)


def _call_errbacks_of_body(app: Any, body: Signature, error: BaseException) -> None:
    for told in failing(body):
        errbacks = [with_ids(errback, told.id, "chord", place) for place, errback in enumerate(told.errbacks)]
        if errbacks:
            context = Context({"delivery_info": {}, "id": told.id, "task": told.task}, errbacks=errbacks)
            app.backend.call_errbacks(context, error, None)


def send_body(app: Any, group_id: str) -> str:
    """Send the body of a complete chord. Its ids are those it was frozen with: sent twice, it runs once."""
    found = loop.ask(app, lambda connection: chords.read(connection, group_id))
    if found is None:
        raise LookupError(f"no chord {group_id} is on record")
    if found.fired:
        return "sent before"
    if not found.complete:
        raise LookupError(f"chord {group_id} is not complete")
    values = {job_id: _value(result) for job_id, result in found.results.items()}
    body = with_ids(json.loads(found.body), group_id, "body")
    signature = app.signature(loads(dumps(body)))
    app.amqp._retry_publish(signature.apply_async, (_nested(json.loads(found.shape), values),))
    loop.ask(app, lambda connection: chords.fired(connection, group_id))
    return "sent"


def _nested(shape: list[Any], values: dict[str, Any]) -> list[Any]:
    return [_nested(each, values) if isinstance(each, list) else values[each] for each in shape]


def _value(result: bytes | None) -> Any:
    return None if result is None else loads(result.decode())
