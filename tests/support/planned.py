"""The `topology` command in a test's vhost, topologies for it, and what the vhost holds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from tests.support.processes import clean_environment, console_script
from tests.support.vhosts import Vhost
from topology.spec import Ladder, Topology, WorkQueue

SMALL = Topology((WorkQueue("jobs", Ladder(steps=2)),))
TALLER = Topology((WorkQueue("jobs", Ladder(steps=3)),))
SLOWER = Topology((WorkQueue("jobs", Ladder(tick_ms=300, steps=2)),))
OTHER = Topology((WorkQueue("other", Ladder(steps=2)),))
CLASSIC = Topology(
    (WorkQueue("jobs", Ladder(steps=2), type="classic", classic_reason="a test", max_priority=5),)
)
TTL_30 = Topology((replace(SMALL.queues[0], message_ttl_s=30),))
TTL_60 = Topology((replace(SMALL.queues[0], message_ttl_s=60, consumer_timeout_s=3_600),))


def topology(
    vhost: Vhost, *arguments: str, of: str = "SMALL", management: bool = True, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run `topology …` to its end. `of` names a topology of this module."""
    return subprocess.run(
        console_script("topology.cli:main", *arguments),
        env=environment(vhost, of=of, management=management) | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def environment(vhost: Vhost, *, of: str, management: bool) -> dict[str, str]:
    settings = {"REDRIVE_AMQP_URL": vhost.amqp_url, "REDRIVE_TOPOLOGY": f"tests.support.planned:{of}"}
    if management:
        settings["REDRIVE_MANAGEMENT_URL"] = vhost.management_url
    return clean_environment(settings)


def planned(vhost: Vhost, **more: Any) -> dict[str, Any]:
    """What `topology plan --format json` says; its exit code is checked against what it says."""
    done = topology(vhost, "plan", "--format", "json", **more)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == found["exit_code"], done.stderr
    return found


def exported(vhost: Vhost) -> dict[str, list[Any]]:
    """The vhost's definitions, each kind sorted."""
    answer = vhost.management.get(f"/api/definitions/{quote(vhost.vhost, safe='')}").raise_for_status()
    return {
        kind: sorted(each, key=lambda one: json.dumps(one, sort_keys=True))
        for kind, each in answer.json().items()
        if isinstance(each, list)
    }


def bound(vhost: Vhost, source: str, destination: str, key: str) -> None:
    """Somebody binds a queue by hand."""
    with vhost.channel() as channel:
        channel.queue_bind(destination, source, key)


def policy(vhost: Vhost, name: str, *, operator: bool = False, **body: Any) -> None:
    """Somebody sets a policy."""
    kind = "operator-policies" if operator else "policies"
    vhost.management.put(f"/api/{kind}/{vhost.vhost}/{name}", json=body).raise_for_status()


@contextmanager
def user(vhost: Vhost, tags: str, configure: str = ".*") -> Iterator[Vhost]:
    """The vhost as another user sees it."""
    name = f"user-{uuid4().hex[:8]}"
    vhost.management.put(f"/api/users/{name}", json={"password": "x", "tags": tags}).raise_for_status()
    rights = {"configure": configure, "write": ".*", "read": ".*"}
    try:
        vhost.management.put(f"/api/permissions/{vhost.vhost}/{name}", json=rights).raise_for_status()
        yield replace(
            vhost,
            amqp_url=_as(vhost.amqp_url, name),
            management_url=_as(vhost.management_url, name),
        )
    finally:
        vhost.management.delete(f"/api/users/{name}").raise_for_status()


def _as(url: str, name: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:x@{parts.hostname}:{parts.port}").geturl()
