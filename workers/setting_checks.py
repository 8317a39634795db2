"""What an app's configuration may not say, because a message could be lost or a worker wait for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from billiard.common import REMAP_SIGTERM

from workers.consuming import RedriveAMQP
from workers.task_checks import COMPRESSIONS, SERIALIZER

if TYPE_CHECKING:
    from workers.celery_app import Redrive

CONSUMER = "workers.consumer:RedriveConsumer"
# Settings that must be off, or on, and what would happen else.
OFF = {
    "task_create_missing_queues": "a typo would make a queue without dead letters",
    "task_always_eager": "jobs would run where they are submitted, without a message",
    "task_acks_on_failure_or_timeout": "a failure would be acknowledged",
    "task_acks_on_failure": "a failure would be acknowledged",
    "task_acks_on_timeout": "a job over its time limit would be acknowledged",
    "worker_soft_shutdown_timeout": "Celery's wait stops heartbeats and acks; set REDRIVE_WORKER_GRACE_S",
    "worker_cancel_long_running_tasks_on_connection_loss": "each lost connection would end running jobs",
}
ON = {
    "task_acks_late": "messages would be acknowledged before they have run",
    "task_reject_on_worker_lost": "a lost process would lose its message",
    "task_publish_retry": "one lost connection would fail a publish",
    "broker_heartbeat": "a connection that died in silence would never be noticed",
    "worker_detect_quorum_queues": "quorum queues know no common prefetch, so consuming would fail",
}
REMOVE = "remove it from the configuration"
# Settings of Celery's that change nothing here, and what does instead.
NOT_USED = {
    "worker_eta_task_limit": (None, "delays wait in the broker"),
    "worker_disable_prefetch": (False, "prefetch is a field of the queue in the topology"),
    "task_retry_on_worker_lost": (False, "REDRIVE_WORKER_CRASH_BOUND says how often"),
}


def unsafe_settings(app: Redrive) -> Iterator[str]:
    """The findings about the app's configuration, each naming the setting and the way out."""
    conf = app.conf
    yield from (f"{name} is on: {why}; {REMOVE}" for name, why in OFF.items() if conf[name])
    yield from (f"{name} is off: {why}; {REMOVE}" for name, why in ON.items() if not conf[name])
    yield from _broker(app)
    yield from _messages(conf)
    yield from _limits(conf)
    yield from _queues(app)
    if REMAP_SIGTERM:
        yield "REMAP_SIGTERM is set: every stop would end what runs; unset it, and send SIGQUIT for that"
    if conf.worker_consumer != CONSUMER or not isinstance(app.amqp, RedriveAMQP):
        yield f"worker_consumer or amqp_cls is not Redrive's: no message would be checked; {REMOVE}"


def unused_settings(app: Redrive) -> Iterator[str]:
    """What is set and has no effect: no loss, but somebody may count on it."""
    conf = app.conf
    for name, (default, instead) in NOT_USED.items():
        if conf[name] != default:
            yield f"{name} has no effect: {instead}; {REMOVE}"
    if conf.worker_prefetch_multiplier != max(queue.prefetch for queue in app.environment.topology.queues):
        yield f"worker_prefetch_multiplier has no effect: prefetch is a field of each queue; {REMOVE}"


def unsafe_options(controller: Any) -> Iterator[str]:
    """The findings about options of a worker that starts, Celery's `WorkController`."""
    conf = controller.app.conf
    for name, given, configured, instead in (
        ("--time-limit", controller.time_limit, conf.task_time_limit, "TIME_LIMIT_S"),
        ("--soft-time-limit", controller.soft_time_limit, conf.task_soft_time_limit, "SOFT_TIME_LIMIT_S"),
    ):
        # Every task has the configured limit, and a task's own goes before the option.
        if configured and given != configured:
            yield (
                f"{name} is {given:g} s, and would have no effect beside the {configured:g} s of every task; "
                f"set REDRIVE_WORKER_{instead}"
            )


def _broker(app: Redrive) -> Iterator[str]:
    conf, url = app.conf, app.environment.broker.address.kombu_url()
    for name in ("broker_url", "broker_read_url", "broker_write_url"):
        if getattr(conf, name) != url:
            yield f"{name} is not that of REDRIVE_AMQP_URL; {REMOVE}, and CELERY_{name.upper()} with it"
    if conf.broker_transport:
        yield f"broker_transport is {conf.broker_transport!r}; {REMOVE}"
    if not (conf.broker_transport_options or {}).get("confirm_publish"):
        yield "broker_transport_options has no confirm_publish: publishes could be lost; set it to True"


def _messages(conf: Any) -> Iterator[str]:
    if conf.task_serializer != SERIALIZER:
        yield f"task_serializer is {conf.task_serializer!r}: workers take JSON alone; {REMOVE}"
    accepted = set(conf.accept_content or ())
    if not accepted or accepted - {SERIALIZER, "application/json"}:
        yield (
            f"accept_content is {sorted(accepted)}: workers take JSON alone, and pickle runs what anybody "
            f"publishes; {REMOVE}"
        )
    if conf.task_compression not in (None, *COMPRESSIONS):
        yield f"task_compression is {conf.task_compression!r}: workers read gzip and bzip2; {REMOVE}"
    if conf.task_protocol != 2:
        yield (
            f"task_protocol is {conf.task_protocol!r}: its messages carry no headers, so that a letter tells "
            f"nothing of its job; {REMOVE} (messages of protocol 1 that others send are run)"
        )


def _limits(conf: Any) -> Iterator[str]:
    hard, soft = conf.task_time_limit, conf.task_soft_time_limit
    if hard and soft and soft > hard:
        yield f"task_soft_time_limit is {soft:g} s, over task_time_limit ({hard:g} s); lower it"


def _queues(app: Redrive) -> Iterator[str]:
    conf, known = app.conf, [queue.name for queue in app.environment.topology.queues]
    there = f"there are: {', '.join(sorted(known))}"
    if conf.task_default_queue not in known:
        yield f"task_default_queue is {conf.task_default_queue!r}, not in the topology; {there}"
    if conf.task_default_exchange_type != "direct":
        yield (
            f"task_default_exchange_type is {conf.task_default_exchange_type!r}: publishes would go to an "
            f"exchange that the topology does not have; {REMOVE}"
        )
    if own := sorted(name for name, queue in app.amqp.queues.items() if not queue.no_declare):
        yield (
            f"task_queues names {', '.join(map(repr, own))}: workers and publishers would declare them, and "
            f"only the topology does; {REMOVE}"
        )
    yield from (
        f"queue {name!r} is not in the topology; {there}"
        for name in app.amqp.queues.consume_from
        if name not in known
    )
    for pattern, name in _routes(conf.task_routes):
        if name not in known:
            yield f"task_routes sends {pattern!r} to queue {name!r}, which is not in the topology; {there}"


def _routes(routes: Any) -> Iterator[tuple[str, str]]:
    """Pattern and queue of each route that is written down; what a router function does, only it knows."""
    if isinstance(routes, Mapping):
        for pattern, route in routes.items():
            queue = route.get("queue") if isinstance(route, Mapping) else route
            if queue is not None:
                yield str(getattr(pattern, "pattern", pattern)), str(getattr(queue, "name", queue))
    elif isinstance(routes, list | tuple):
        pairs = [route for route in routes if isinstance(route, tuple) and len(route) == 2]
        if len(pairs) == len(routes):
            yield from _routes(dict(pairs))
        else:
            for route in routes:
                yield from _routes(route)
