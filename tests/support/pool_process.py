"""One attempt of a task under Celery's tracer, as a pool process runs it. No broker, no database."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from celery.app.trace import build_tracer

from storage.settings import StorageSettings
from topology.settings import TopologySettings
from topology.spec import Topology, WorkQueue
from workers import child
from workers.celery_app import Redrive
from workers.outcomes import Outcome
from workers.settings import Environment, WorkerSettings


def app_of_its_own(*queues: WorkQueue) -> Redrive:
    """An app whose URLs nobody calls, over these queues; without any, over one called `work`."""
    app = unfinished_app(*queues)
    app.finalize()
    return app


def unfinished_app(*queues: WorkQueue) -> Redrive:
    """The same, still to be configured."""
    environment = Environment(
        TopologySettings(_env_file=None, amqp_url="amqp://localhost/%2F"),  # type: ignore[call-arg, arg-type]
        StorageSettings(_env_file=None, database_url="postgresql://localhost/x"),  # type: ignore[call-arg, arg-type]
        WorkerSettings(_env_file=None),  # type: ignore[call-arg]
        Topology(queues=queues or (WorkQueue("work"),)),
    )
    return Redrive("unit", environment=environment, set_as_current=True)


def attempt(
    app: Redrive,
    task: Any,
    *,
    retries: int = 0,
    number: int = 1,
    args: tuple[Any, ...] = (),
    delivered_by: str = "",
    timelimit: list[float | None] | None = None,
) -> Outcome:
    """How one attempt of a registered task ends; `number` counts the attempts, `retries` is Celery's."""
    task.__trace__ = build_tracer(task.name, task, app=app)
    ticket = child.Ticket("job", uuid4(), 1, number)
    request = {
        "id": "job", "redrive": ticket, "retries": retries, "hostname": "h",
        "delivery_info": {"exchange": "", "routing_key": delivered_by}, "timelimit": timelimit,
    }  # fmt: skip
    return child.run(task.name, "job", request, (list(args), {}, {"chain": None})).outcome


def attempt_of(
    app: Redrive,
    function: Any,
    *,
    retries: int = 0,
    number: int = 1,
    args: tuple[Any, ...] = (),
    timelimit: list[float | None] | None = None,
    **options: Any,
) -> Outcome:
    """How one attempt of a bound task made of `function` with these options ends."""
    task = app.task(function, bind=True, shared=False, name=f"unit.{uuid4()}", **options)
    return attempt(app, task, retries=retries, number=number, args=args, timelimit=timelimit)
