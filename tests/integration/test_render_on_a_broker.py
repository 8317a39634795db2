"""What is imported from a rendering is what `topology apply` declares, as the broker itself exports it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.field_jobs import PATIENT
from tests.support.field_jobs import TOPOLOGY as FIELDS
from tests.support.policies import put_policies
from tests.support.servers import NotControllable, Servers
from tests.support.vhosts import Vhost, fresh_vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import Entities, compile_topology
from topology.releases import Release, known_policies
from topology.render.definitions import definitions_text
from topology.spec import Ladder, Topology, WorkQueue

TOPOLOGY = Topology((
    *FIELDS.queues, *PATIENT.queues, WorkQueue("payments", Ladder(steps=3)),
    WorkQueue("Odd_Name:1.x", Ladder(steps=2), delivery_limit=3, message_ttl_s=60),
))  # fmt: skip
KINDS = ("exchanges", "queues", "bindings", "policies")
Export = dict[str, list[dict[str, Any]]]


def exported(vhost: Vhost) -> Export:
    """Sorted, without the vhost's name, which differs, and what only newer releases write."""
    answer = vhost.management.get(f"/api/definitions/{quote(vhost.vhost, safe='')}").raise_for_status().json()
    kept = {
        kind: [
            {
                key: value
                for key, value in each.items()
                if key != "vhost" and (kind, key) != ("queues", "type")
            }
            for each in answer[kind]
        ]
        for kind in KINDS
    }
    return {
        kind: sorted(found, key=lambda each: json.dumps(each, sort_keys=True)) for kind, found in kept.items()
    }


@pytest.fixture
def entities(broker_release: Release) -> Entities:
    compiled = compile_topology(TOPOLOGY)
    policies, _ = known_policies(compiled.policies, broker_release)
    return Entities(compiled.exchanges, compiled.queues, compiled.bindings, policies)


@pytest.fixture
def applied(vhost: Vhost, entities: Entities) -> Export:
    apply(AmqpAddress.parse(vhost.amqp_url), entities)
    put_policies(vhost, entities)
    found = exported(vhost)
    assert [len(found[kind]) for kind in KINDS] == [
        len(entities.exchanges), len(entities.queues), len(entities.bindings), len(entities.policies)
    ]  # fmt: skip
    return found


def same(vhost: Vhost, applied: Export) -> None:
    """Imports go on in the background on some releases."""

    def compared() -> bool:
        found = exported(vhost)
        for kind in KINDS:
            assert found[kind] == applied[kind], kind
        return True

    eventually(compared, 30, "the import is what apply declares")


def upload(vhost: Vhost, text: str) -> None:
    answer = vhost.management.post(
        f"/api/definitions/{quote(vhost.vhost, safe='')}",
        content=text,
        headers={"content-type": "application/json"},
    )
    assert answer.is_success, answer.text


def test_the_management_upload_makes_what_apply_declares(
    servers: Servers, entities: Entities, applied: Export
) -> None:
    with fresh_vhost(servers.urls.amqp, servers.urls.management) as other:
        upload(other, definitions_text(entities, other.vhost))
        same(other, applied)
        # Over what is there already, rendered for any vhost: nothing to do, nothing refused.
        upload(other, definitions_text(entities, "elsewhere"))
        same(other, applied)


def test_rabbitmqctl_makes_what_apply_declares(servers: Servers, entities: Entities, applied: Export) -> None:
    with fresh_vhost(servers.urls.amqp, servers.urls.management) as other:
        try:
            servers.rabbitmqctl("import_definitions", stdin=definitions_text(entities, other.vhost))
        except NotControllable:
            pytest.skip("not run: the broker is named in the environment, and its rabbitmqctl is not here")
        same(other, applied)
