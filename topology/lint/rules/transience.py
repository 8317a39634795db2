"""What does not survive a restart, or the loss of a node."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.finding import Finding
from topology.lint.roles import queues
from topology.lint.words import listed
from topology.lint.words import queue as named


def transience(broker: Broker) -> Iterator[Finding]:
    """TRANSIENT-QUEUE, QUORUM-TRANSIENT, SINGLE-COPY."""
    single: dict[str, list[str]] = {}
    for vhost, queue in queues(broker):
        kind = broker.queue_settings(queue).type.value
        if kind != "classic":
            flags = [
                word
                for word, on in (
                    ("not durable", not queue.durable),
                    ("auto-delete", queue.auto_delete),
                    ("exclusive", queue.exclusive),
                )
                if on
            ]
            if flags:
                yield found(
                    "QUORUM-TRANSIENT",
                    vhost.name,
                    named(queue.name),
                    f"a {kind} queue cannot be {' or '.join(flags)}: declaring it is refused, and an "
                    "import leaves it "
                    "out without a word; its bindings then fail the import, or are left out too (3.10)",
                    "declare it durable, not auto-delete and not exclusive",
                    (f"{named(queue.name)} ({kind})", ", ".join(flags)),
                )
        elif not queue.durable and not queue.exclusive:
            yield found(
                "TRANSIENT-QUEUE",
                vhost.name,
                named(queue.name),
                # Asked of 4.3.6: transient_nonexcl_queues is "permitted_by_default".
                "when the node restarts the queue is gone, with its messages and its bindings. Such queues "
                "are deprecated: RabbitMQ refuses them where the feature transient_nonexcl_queues is denied",
                "declare it durable, or exclusive if it belongs to one connection",
                (named(queue.name), "not durable, not exclusive"),
            )
        elif queue.durable:
            single.setdefault(vhost.name, []).append(queue.name)
    for vhost_name, names in single.items():
        yield found(
            "SINGLE-COPY",
            vhost_name,
            f"vhost {vhost_name!r}",
            f"classic queues have one copy ({len(names)} of them here): while their node is away their "
            "messages are out of reach, and with its disk they are lost",
            "use quorum queues where messages matter",
            (listed(sorted(names)),),
        )
