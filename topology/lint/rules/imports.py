"""What an import of the definitions refuses or leaves out, beyond queues, policies and bindings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.finding import Finding
from topology.lint.words import exchange, queue

MAX_NAME_BYTES = 255
_PLUGINS = {
    "shovel": "rabbitmq_shovel",
    "federation-upstream": "rabbitmq_federation",
    "federation-upstream-set": "rabbitmq_federation",
}


def imports(broker: Broker) -> Iterator[Finding]:
    """BOOT-NO-VHOST, NAME-TOO-LONG, NAME-RESERVED, PARAM-PLUGIN."""
    definitions = broker.definitions
    if definitions.origin == "file":
        declared = {vhost.name for vhost in definitions.vhosts}
        for name, vhost in broker.vhosts.items():
            if name not in declared:
                yield found(
                    "BOOT-NO-VHOST",
                    name,
                    "file",
                    f"vhost {name!r} is used and not part of the file: a broker that loads it at its first "
                    "start makes no default vhost and no default user, and the load stops",
                    f"add vhost {name!r}, and a user, to the file",
                    (f"{len(vhost.queues)} queues and {len(vhost.bindings)} bindings name vhost {name!r}",),
                )
        yield from _reserved(broker)
    yield from _long_names(broker)
    components = Counter((one.vhost, one.component) for one in definitions.parameters)
    for (vhost_name, component), count in components.items():
        if plugin := _PLUGINS.get(component):
            yield found(
                "PARAM-PLUGIN",
                vhost_name,
                f"parameter {component!r}",
                f"plugin {plugin} is needed ({count} of these parameters): without it the import fails "
                "before any queue is made",
                f"rabbitmq-plugins enable {plugin}",
                (f"component {component!r}",),
            )


def _reserved(broker: Broker) -> Iterator[Finding]:
    predeclared = {f"amq.{name}" for name in ("direct", "fanout", "topic", "headers", "match")}
    predeclared |= {"amq.rabbitmq.trace", "amq.rabbitmq.log", "amq.rabbitmq.event"}
    names = [(one.vhost, queue(one.name), one.name) for one in broker.definitions.queues]
    names += [
        (one.vhost, exchange(one.name), one.name)
        for one in broker.definitions.exchanges
        if one.name not in predeclared
    ]
    for vhost_name, entity, name in names:
        if name.startswith("amq."):
            yield found(
                "NAME-RESERVED",
                vhost_name,
                entity,
                "names that begin with amq. are the broker's own: an import leaves this one out without "
                "a word, "
                "and its bindings fail or are left out too",
                "choose another name",
                (entity,),
            )


def _long_names(broker: Broker) -> Iterator[Finding]:
    for vhost in broker.vhosts.values():
        long = [queue(name) for name in vhost.queues if len(name.encode()) > MAX_NAME_BYTES]
        long += [exchange(name) for name in vhost.exchanges if len(name.encode()) > MAX_NAME_BYTES]
        for entity in long:
            yield found(
                "NAME-TOO-LONG",
                vhost.name,
                entity,
                f"a name has at most {MAX_NAME_BYTES} bytes in UTF-8, and no client can send this one",
                "choose a shorter name",
                (entity,),
            )
