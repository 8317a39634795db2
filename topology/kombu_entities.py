"""The topology for Celery: kombu queues that are never declared by a worker or a publisher."""

from __future__ import annotations

from kombu import Exchange, Queue

from topology.entities import compile_topology
from topology.spec import Topology


def task_queues(topology: Topology, time_scale: float = 1.0) -> list[Queue]:
    """One kombu queue per work queue, for Celery's `task_queues`.

    The arguments are there because Celery looks for `x-queue-type` to choose per-consumer QoS, which
    quorum queues need. Neither the queue nor its exchange is declared: only `topology apply` declares.
    """
    arguments = {queue.name: dict(queue.arguments) for queue in compile_topology(topology, time_scale).queues}
    # The default exchange: a publish with the queue's name as key reaches exactly that queue.
    default = Exchange("", type="direct", no_declare=True)
    return [
        Queue(
            queue.name,
            exchange=default,
            routing_key=queue.name,
            durable=True,
            no_declare=True,
            queue_arguments=arguments[queue.name],
        )
        for queue in topology.queues
    ]
