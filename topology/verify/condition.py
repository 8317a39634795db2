"""How the broker and its queues are. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from topology.entities import Entities
from topology.names import moving
from topology.plan.moving import is_begun
from topology.verify.check import Check, failed, not_probed, ok
from topology.verify.declared import Owners
from topology.verify.live import Live, LiveQueue

# At-least-once dead-lettering and message TTL came to quorum queues with it.
# https://www.rabbitmq.com/docs/quorum-queues
FIRST_RELEASE = (3, 10)


def check_broker(live: Live) -> Iterator[Check]:
    """Its version and its alarms."""
    path = f"broker RabbitMQ {live.have.version}"
    if live.have.release() < FIRST_RELEASE:
        yield failed(path, "", "it loses dead letters of quorum queues", "Upgrade to RabbitMQ 3.10 or newer")
    else:
        yield ok(path, "")
    if live.alarms is None:
        fix = "Give the management user the tag monitoring"
        yield not_probed("alarms of the nodes", "", "the management user may not see them", fix)
    elif live.alarms:
        fix = "Free memory or disk space: no message is taken until then"
        yield failed("alarms of the nodes", "", "; ".join(live.alarms), fix)
    else:
        yield ok("alarms of the nodes", "")


def check_queues(entities: Entities, live: Live, owners: Owners) -> Iterator[Check]:
    """A failed check for each queue that does not serve, or that somebody takes retries from."""
    for queue in entities.queues:
        path, owner = f"queue {queue.name}", owners.of(queue.name)
        if is_begun(queue.name, live.have):
            words = f"its migration runs or was interrupted: messages may wait in {moving(queue.name)}"
            yield failed(path, owner, words, "Run: topology migrate", about=(queue.name,))
        have = live.queues.get(queue.name)
        if have is None:
            continue
        if have.state not in ("running", "idle", "flow") or _is_minority(have):
            fix = "Bring its nodes back: rabbitmq-diagnostics cluster_status, then the log of the broker"
            words = f"its state is {have.state}, {have.online} of {have.members} members are online"
            yield failed(path, owner, words, fix, about=(queue.name,))
        if "x-message-ttl" in queue.arguments and have.consumers:
            fix = "Find it in the management UI under the queue's consumers, and stop it"
            words = f"{have.consumers} consumers take retries out of the ladder"
            yield failed(
                path, owner, words.replace("1 consumers take", "a consumer takes"), fix, about=(queue.name,)
            )


def check_stuck(
    entities: Entities,
    stuck: Mapping[str, int],
    broken: Collection[str],
    owners: Owners,
) -> Iterator[Check]:
    """A failed check for each queue that cannot hand on its dead letters.

    Args:
        stuck: how many, by queue.
        broken: names of entities that another check failed for.
    """
    for queue in entities.queues:
        if not (waiting := stuck.get(queue.name)):
            continue
        target = str(queue.arguments.get("x-dead-letter-exchange", ""))
        cause = (
            f"exchange {target} or what is bound to it is not as declared, see there"
            if target in broken
            else f"a queue behind exchange {target} is missing, full or without a majority"
        )
        yield failed(
            f"queue {queue.name}: dead letters that cannot leave it (messages_dlx)",
            owners.of(queue.name),
            f"{waiting} wait; {cause}",
            "Mend that; the broker tries again every 3 minutes, and what comes behind them waits too",
        )


def _is_minority(queue: LiveQueue) -> bool:
    return queue.members > 0 and queue.online * 2 <= queue.members
