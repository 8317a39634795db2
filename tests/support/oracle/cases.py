"""Other people's definitions files made fit to be driven: short delays, one virtual host each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.oracle.compare import limits_of
from tests.support.oracle.drive import Drive, Way
from tests.support.oracle.site import Site
from topology.lint.broker import Broker
from topology.lint.definitions import Definitions
from topology.lint.read import read
from topology.lint.target import Target

FOLDER = Path(__file__).parents[3] / "../shared/cases/definitions"
LONGEST_TTL_MS = 60
SHORT = 2
# Where a queue has to be filled before its messages expire.
SLOWEST_TTL_MS, SLOW_TTL_MS = 250, 200
BUILT_IN = ("direct", "fanout", "topic", "headers")

Tree = dict[str, Any]


def case_files() -> list[Path]:
    """None where the folder is not there."""
    return sorted(FOLDER.glob("*.json"))


def parts(file: Path, release: tuple[int, int]) -> Iterator[Tree]:
    """One tree per virtual host that has queues, as an import into one virtual host takes it.

    What this broker refuses for reasons that have nothing to do with dead letters is left out: mirroring on
    RabbitMQ 4, bindings to nothing, exchanges of plugins.

    Raises:
        ValueError: the file is not JSON.
    """
    tree: Tree = json.loads(file.read_text(encoding="utf-8"))
    longest = max((ttl for ttl in _ttls(tree) if isinstance(ttl, int)), default=1)
    names = sorted({queue.get("vhost", "/") for queue in tree.get("queues", [])})
    for name in names:
        part: Tree = {
            kind: [dict(one) for one in tree.get(kind, []) if one.get("vhost", "/") == name]
            for kind in ("queues", "exchanges", "bindings", "policies")
        }
        part["exchanges"] = [one for one in part["exchanges"] if one["type"] in BUILT_IN]
        part["bindings"] = [one for one in part["bindings"] if _both_ends(part, one)]
        for queue in part["queues"]:
            queue["arguments"] = _shortened(queue.get("arguments", {}), "x-", longest)
        for policy in part["policies"]:
            policy["definition"] = {
                key: value
                for key, value in _shortened(policy["definition"], "", longest).items()
                if release < (4, 0) or not key.startswith("ha-")
            }
        part["policies"] = [policy for policy in part["policies"] if policy["definition"]]
        for one in (*part["queues"], *part["exchanges"], *part["bindings"], *part["policies"]):
            one.pop("vhost", None)
        yield part


class Refused(Exception):
    """The broker does not take the file; the text is what it says."""


def bring(site: Site, part: Tree) -> None:
    """Import it into the site's own virtual host. Raises Refused."""
    vhost = quote(site.vhost.vhost, safe="")
    answer = site.vhost.management.post(f"/api/definitions/{vhost}", json=part)
    if not answer.is_success:
        raise Refused(f"{answer.status_code} {answer.text[:300]}")
    streams = {one["name"] for one in part["queues"] if one["arguments"].get("x-queue-type") == "stream"}
    site.queues = tuple(one["name"] for one in part["queues"] if one["name"] not in streams)


def modelled(vhost: str, part: Tree) -> Definitions:
    """The same as the linter reads it."""
    kinds = ("queues", "exchanges", "bindings", "policies")
    tree = {kind: [{**one, "vhost": vhost} for one in part[kind]] for kind in kinds}
    return read(json.dumps({**tree, "vhosts": [{"name": vhost}]}).encode(), "a case")


def drives(definitions: Definitions) -> tuple[Drive, ...]:
    """Each queue loses messages, with its own name for a key and with one of its bindings'."""
    ways: tuple[Way, ...] = ("rejected", "expired", "delivery_limit")
    return tuple(
        Drive(name, way, key) for way in ways for name, keys in _keys(definitions).items() for key in keys
    )


def with_one_short(part: Tree, name: str) -> Tree:
    """The same with room for `SHORT` messages in one queue, and more time before messages expire."""
    queues = [{**one, "arguments": _slowed(one["arguments"], "x-")} for one in part["queues"]]
    for queue in queues:
        if queue["name"] == name:
            queue["arguments"]["x-max-length"] = SHORT
    policies = [{**one, "definition": _slowed(one["definition"], "")} for one in part["policies"]]
    return {**part, "queues": queues, "policies": policies}


def limited(part: Tree, release: tuple[int, int]) -> list[str]:
    """The queues that have a length limit."""
    limits = limits_of(Broker(modelled("v", part), Target(*release)), "v")
    return [name for name, queue in limits.items() if queue.length is not None]


def overflows(definitions: Definitions, name: str) -> tuple[Drive, ...]:
    return tuple(Drive(name, "maxlen", key) for key in _keys(definitions).get(name, ()))


def _keys(definitions: Definitions) -> dict[str, list[str]]:
    """Queue -> routing keys to try. A queue that goes with its consumer cannot be driven."""
    found = {}
    for queue in definitions.queues:
        if queue.auto_delete or queue.arguments.get("x-queue-type") == "stream":
            continue
        bound = [b.routing_key for b in definitions.bindings if b.destination == queue.name]
        literal = [key for key in bound if not set(key) & set("*#")]
        found[queue.name] = list(dict.fromkeys((queue.name, *literal[:1])))
    return found


def _ttls(tree: Mapping[str, Any]) -> Iterator[object]:
    for queue in tree.get("queues", []):
        yield queue.get("arguments", {}).get("x-message-ttl")
    for policy in tree.get("policies", []):
        yield policy["definition"].get("message-ttl")


def _both_ends(part: Tree, binding: Mapping[str, Any]) -> bool:
    kind = "queues" if binding["destination_type"] == "queue" else "exchanges"
    names = [one["name"] for one in part[kind]]
    sources = [one["name"] for one in part["exchanges"]]
    source = str(binding["source"])
    return binding["destination"] in names and (source in sources or source.startswith("amq."))


def _shortened(values: Mapping[str, Any], prefix: str, longest: int) -> Tree:
    found = dict(values)
    ttl = found.get(prefix + "message-ttl")
    if isinstance(ttl, int):
        found[prefix + "message-ttl"] = max(1, ttl * LONGEST_TTL_MS // longest)
    return found


def _slowed(values: Mapping[str, Any], prefix: str) -> Tree:
    ttl = values.get(prefix + "message-ttl")
    if not isinstance(ttl, int):
        return dict(values)
    return {
        **values,
        prefix + "message-ttl": max(SLOW_TTL_MS, ttl * SLOWEST_TTL_MS // LONGEST_TTL_MS),
    }
