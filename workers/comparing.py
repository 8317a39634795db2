"""Before anything is consumed: are the queues on the broker those of the topology?"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from topology.errors import AccessRefusedError, BrokerUnreachableError, TopologyError
from topology.plan.fitness import fitness_of
from workers.errors import UnsafeTaskError

if TYPE_CHECKING:
    from workers.celery_app import Redrive

logger = logging.getLogger(__name__)


def refuse_unfit_queues(app: Redrive) -> None:
    """Of the queues that this worker consumes.

    Raises:
        UnsafeTaskError: naming each queue, and what to run.
        ConnectionError: the broker went away; Celery connects again.
    """
    environment = app.environment
    try:
        found = fitness_of(environment.broker, environment.topology, app.amqp.queues.consume_from)
    except (BrokerUnreachableError, AccessRefusedError) as error:
        raise ConnectionError(str(error)) from error
    except TopologyError as error:
        raise UnsafeTaskError(f"the queues could not be compared with the topology: {error}") from error
    for words in found.noted:
        logger.info("queues compared with the topology: %s", words, extra={"action": "queues_compared"})
    if found.wrong:
        raise UnsafeTaskError("; ".join(found.wrong))
