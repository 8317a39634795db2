"""How long `topology lint` takes, by the number of queues: `python -m benchmarks.lint`.

A synthetic broker in one virtual host: services of three queues each (work, retry, dead letters), a topic
exchange and a dead-letter exchange for every 50 services, 20 policies, an operator policy, and a fault in
every 20th service.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from topology.lint.read import read
from topology.lint.run import lint
from topology.lint.target import Target

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
TEAM = 50  # services that share exchanges
FAULTY = 20  # one service in so many
POLICIES = 20
VHOST = "/"


class Measured(NamedTuple):
    """But for the first three, seconds of CPU time: a busy machine changes it little."""

    queues: int
    megabytes: float
    findings: int
    loads: float
    read: float
    lint: float

    @property
    def total(self) -> float:
        return self.read + self.lint


def definitions(queues: int) -> dict[str, Any]:
    """An export with `queues` queues, rounded to whole services."""
    tree: dict[str, Any] = {"rabbitmq_version": "4.3.6", "vhosts": [{"name": VHOST}], "users": []}
    tree |= {"queues": [], "exchanges": [], "bindings": [], "parameters": [_operator_policy()]}
    for number in range(queues // 3):
        if number % TEAM == 0:
            tree["exchanges"] += [_exchange(_events(number), "topic"), _exchange(_dlx(number), "direct")]
        tree["queues"] += _queues(number)
        tree["bindings"] += _bindings(number)
    tree["policies"] = [_policy(number) for number in range(POLICIES)]
    return tree


def _events(number: int) -> str:
    return f"team-{number // TEAM}.events"


def _dlx(number: int) -> str:
    return f"team-{number // TEAM}.dlx"


def _queues(number: int) -> Iterator[dict[str, Any]]:
    name = f"service-{number}"
    # A fault: the key of the dead letters is bound nowhere.
    key = f"{name}.lost" if number % FAULTY == 0 else name
    yield _queue(
        name,
        {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": _dlx(number),
            "x-dead-letter-routing-key": key,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    )
    yield _queue(
        f"{name}.retry",
        {"x-message-ttl": 30_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name},
    )
    yield _queue(f"{name}.dlq", {"x-queue-type": "quorum", "x-delivery-limit": 2_000_000_000})


def _bindings(number: int) -> Iterator[dict[str, Any]]:
    name = f"service-{number}"
    yield _binding(_events(number), name, f"event.{name}.*")
    yield _binding(_events(number), name, "broadcast.#")
    yield _binding(_dlx(number), f"{name}.dlq", name)


def _queue(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "vhost": VHOST,
        "durable": True,
        "auto_delete": False,
        "type": arguments.get("x-queue-type", "classic"),
        "arguments": arguments,
    }


def _exchange(name: str, kind: str) -> dict[str, Any]:
    return {
        "name": name,
        "vhost": VHOST,
        "type": kind,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
    }


def _binding(source: str, destination: str, key: str) -> dict[str, Any]:
    return {
        "source": source,
        "vhost": VHOST,
        "destination": destination,
        "destination_type": "queue",
        "routing_key": key,
        "arguments": {},
    }


def _policy(number: int) -> dict[str, Any]:
    return {
        "vhost": VHOST,
        "name": f"policy-{number}",
        "pattern": rf"^service-\d*{number}\.(retry|dlq)$",
        "apply-to": "queues",
        "definition": {"max-length": 100_000 + number},
        "priority": number,
    }


def _operator_policy() -> dict[str, Any]:
    value = {"pattern": ".*", "apply-to": "queues", "definition": {"max-length": 1_000_000}, "priority": 1}
    return {"vhost": VHOST, "component": "operator_policy", "name": "cap", "value": value}


def measure(queues: int) -> Measured:
    """One run: parse, then lint for RabbitMQ 4.3. `loads` is Python's JSON parser on the same bytes."""
    content = json.dumps(definitions(queues), indent=1).encode()
    begun = time.process_time()
    json.loads(content)
    loaded = time.process_time()
    found = read(content, "synthetic")
    ready = time.process_time()
    findings = lint(found, Target.nearest(found.rabbitmq_version))
    done = time.process_time()
    return Measured(
        len(found.queues), len(content) / 1e6, len(findings), loaded - begun, ready - loaded, done - ready
    )


def main() -> None:
    """Print a line per size; the last columns stay level where the cost is linear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, help="numbers of queues")
    gc.disable()  # as the command does
    print("Seconds of CPU time.")
    print("queues   MB    findings  json.loads  read s  lint s  total s  ms per queue  × json.loads")
    for size in parser.parse_args().sizes:
        run = measure(size)
        seconds = f"{run.loads:10.3f}  {run.read:6.3f}  {run.lint:6.2f}  {run.total:7.2f}"
        ratios = f"{1000 * run.total / run.queues:12.3f}  {run.total / run.loads:12.1f}"
        print(
            f"{run.queues:6}  {run.megabytes:5.1f}  {run.findings:8}  {seconds}  {ratios}",
            flush=True,
        )


if __name__ == "__main__":
    main()
