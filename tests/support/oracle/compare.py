"""What the linter says of each message beside what the broker did with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.oracle.drive import Drive, Limits, Undriven, obstacle
from tests.support.oracle.landing import Landing, groups, play
from tests.support.oracle.site import Site
from tests.support.oracle.topologies import Example
from topology.lint.broker import Broker
from topology.lint.settle import Settled, settle
from topology.lint.target import Target


@dataclass(frozen=True)
class Disagreement:
    """One message that went elsewhere than the linter said."""

    drive: Drive
    said: Settled
    seen: Landing | Undriven

    def __str__(self) -> str:
        return f"{self.drive}\n  linter: {_words(self.said)}\n  broker: {self.seen}"


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    skipped: why drives were not tried, or what the linter would not decide.
    tried: each driven message with what the linter said of it.
    """

    disagreements: tuple[Disagreement, ...]
    tried: tuple[tuple[Drive, Settled], ...]
    skipped: Counter[str] = field(default_factory=Counter)


def compare(site: Site, example: Example, release: tuple[int, int]) -> Comparison:
    """Build the topology on the site and drive each message that can be driven and is decided."""
    return compare_with(site, example, release, lambda: site.build(example.definitions))


def compare_with(
    site: Site, example: Example, release: tuple[int, int], build: Callable[[], None]
) -> Comparison:
    """The same where `build` brings the topology to the site, and again for a second look."""
    broker = Broker(example.definitions, Target(*release))
    vhost = example.definitions.queues[0].vhost
    limits = limits_of(broker, vhost)
    skipped: Counter[str] = Counter()
    said: dict[Drive, Settled] = {}
    for drive in example.drives:
        if why := obstacle(drive, limits):
            skipped[why] += 1
            continue
        settled = settle(broker, vhost, drive.queue, drive.key, drive.way, dict(drive.headers))
        if settled.undecided:
            skipped["undecided: " + settled.undecided[0]] += 1
        else:
            said[drive] = settled
    if not said:
        return Comparison((), (), skipped)
    build()
    wrong = []
    for group in groups(list(said), limits):
        wrong += [drive for drive, seen in _play(site, group, limits, said) if not _same(said[drive], seen)]
    # A surprise is looked at again, alone and on a fresh site: neighbours may have been in its way.
    again = []
    for drive in wrong:
        build()
        again += _play(site, [drive], limits, said)
    return Comparison(
        tuple(
            Disagreement(drive, said[drive], seen) for drive, seen in again if not _same(said[drive], seen)
        ),
        tuple(said.items()),
        skipped,
    )


def report(example: Example, disagreements: Sequence[Disagreement], release: tuple[int, int]) -> str:
    """For the person who has to find out who is right."""
    lines = [f"RabbitMQ {release[0]}.{release[1]} did not do what the linter said.", *map(str, disagreements)]
    definitions = example.definitions
    lines += [f"queue {queue.name!r} {dict(queue.arguments)}" for queue in definitions.queues]
    lines += [
        f"exchange {exchange.name!r} ({exchange.type}) {dict(exchange.arguments)}"
        for exchange in definitions.exchanges
    ]
    lines += [
        f"binding {binding.source!r} -> {binding.destination_type} {binding.destination!r} "
        f"({binding.routing_key!r}) {dict(binding.arguments)}"
        for binding in definitions.bindings
    ]
    lines += [
        f"{'operator ' if policy.operator else ''}policy {policy.name!r} {policy.pattern!r}"
        f" for {policy.apply_to}, priority {policy.priority}: {dict(policy.definition)}"
        for policy in definitions.policies
    ]
    return "\n".join(lines)


def limits_of(broker: Broker, vhost: str) -> dict[str, Limits]:
    found = {}
    for queue in broker.vhosts[vhost].queues.values():
        settings = broker.queue_settings(queue)
        lengths = [s.value for s in (settings.max_length, settings.max_length_bytes) if s is not None]
        found[queue.name] = Limits(
            settings.ttl_ms.value if settings.ttl_ms else None,
            min(lengths, default=None),
            settings.delivery_limit.value if settings.delivery_limit else None,
            settings.overflow != "drop-head",
            settings.type.value == "quorum",
        )
    return found


def _play(
    site: Site, group: Sequence[Drive], limits: Mapping[str, Limits], said: Mapping[Drive, Settled]
) -> list[tuple[Drive, Landing | Undriven]]:
    expected = [Landing(said[drive].resting) for drive in group]
    return list(zip(group, play(site, group, limits, expected), strict=True))


def _same(said: Settled, seen: Landing | Undriven) -> bool:
    return isinstance(seen, Landing) and dict(+said.resting) == dict(seen.resting)


def _words(said: Settled) -> str:
    parts = [str(Landing(said.resting))]
    parts += [f"{count} dropped ({why})" for why, count in said.dropped.items()]
    parts += [f"{count} kept in {queue!r}" for queue, count in said.kept.items()]
    return "; ".join(parts)
