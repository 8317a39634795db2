"""The renderings of a topology: complete, stable, and read back as the same entities."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.support.field_jobs import LADDER, PATIENT
from tests.support.field_jobs import TOPOLOGY as FIELDS
from topology.catalogue import TOPOLOGY
from topology.cli import main
from topology.entities import Binding, Entities, Exchange, Policy, Queue, compile_topology
from topology.errors import ManifestError
from topology.releases import known_policies, parse_release
from topology.render.definitions import definitions, definitions_text
from topology.render.operator import manifests, manifests_text, object_name, read_manifests
from topology.spec import Topology, WorkQueue

ENTITIES = {"samples": compile_topology(TOPOLOGY), "fields": compile_topology(FIELDS)}
each_topology = pytest.mark.parametrize("name", ENTITIES)
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
RFC_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
names = st.text("abAB01_-.:", min_size=1, max_size=300)


def run(*arguments: str, topology: str = "topology.catalogue:TOPOLOGY") -> Result:
    return CliRunner(env={"REDRIVE_TOPOLOGY": topology, "REDRIVE_AMQP_URL": None}).invoke(main, arguments)


def parsed(entities: Entities, **options: Any) -> list[dict[str, Any]]:
    made = manifests(entities, **{"vhost": "shop", "cluster": "rabbit"} | options)
    return list(yaml.safe_load_all(manifests_text(made)))


@each_topology
def test_definitions_hold_every_entity_with_the_vhost(name: str) -> None:
    entities = ENTITIES[name]
    made = definitions(entities, "shop")

    assert {kind: len(found) for kind, found in made.items()} == {
        "exchanges": len(entities.exchanges), "queues": len(entities.queues),
        "bindings": len(entities.bindings), "policies": len(entities.policies),
    }  # fmt: skip
    assert {each["vhost"] for found in made.values() for each in found} == {"shop"}
    assert {each["name"]: each["arguments"] for each in made["queues"]} == {
        queue.name: queue.arguments for queue in entities.queues
    }


def test_definitions_do_not_depend_on_the_order_of_the_queues() -> None:
    turned = Topology(tuple(reversed(TOPOLOGY.queues)))
    assert definitions_text(compile_topology(turned), "/") == definitions_text(ENTITIES["samples"], "/")


@each_topology
def test_manifests_read_back_are_the_entities(name: str) -> None:
    assert read_manifests(parsed(ENTITIES[name])) == ENTITIES[name]


@each_topology
def test_manifests_read_back_are_the_definitions_entity_by_entity(name: str) -> None:
    """Both as written, each through a parser."""
    written = json.loads(definitions_text(ENTITIES[name], "shop"))
    back = json.loads(definitions_text(read_manifests(parsed(ENTITIES[name])), "shop"))

    assert back.keys() == written.keys()
    for kind, found in written.items():
        assert back[kind] == found


@each_topology
def test_manifests_have_names_that_kubernetes_takes_unique_of_their_kind(name: str) -> None:
    found = [(each["kind"], each["metadata"]["name"]) for each in parsed(ENTITIES[name])]
    assert len(set(found)) == len(found)
    assert [name for _, name in found if not RFC_1123.fullmatch(name) or len(name) > 253] == []


@given(st.lists(names, min_size=2, max_size=8, unique=True))
def test_names_of_any_letters_and_length_stay_apart(given_names: list[str]) -> None:
    made = [object_name(name) for name in given_names]
    assert len(set(made)) == len(made)
    assert [name for name in made if not RFC_1123.fullmatch(name) or len(name) > 253] == []


def test_a_plain_name_is_kept() -> None:
    assert object_name("payments.retry.250ms") == "payments.retry.250ms"
    assert object_name("Payments_EU").startswith("payments-eu-")


def test_every_manifest_names_vhost_and_cluster() -> None:
    made = parsed(ENTITIES["fields"], namespace="messaging")
    assert {each["apiVersion"] for each in made} == {"rabbitmq.com/v1beta1"}
    assert {each["spec"]["vhost"] for each in made} == {"shop"}
    assert [each["spec"]["rabbitmqClusterReference"] for each in made] == [
        {"name": "rabbit", "namespace": "messaging"}
    ] * len(made)


@pytest.mark.parametrize(
    "text", ["on", "No", "null", "~", "1e3", "", "a: b", "\u00e9\U0001f600", "a\nb", "- x", "0x1", "#"]
)
def test_texts_that_yaml_could_take_for_something_else_stay_texts(text: str) -> None:
    entities = Entities(
        (Exchange(text, "direct"),), (Queue(text, {"x-queue-type": "quorum", text: text}),), ()
    )
    assert read_manifests(parsed(entities, vhost=text)) == entities
    assert {each["spec"]["vhost"] for each in parsed(entities, vhost=text)} == {text}


def changed(kind: str, **spec: Any) -> list[dict[str, Any]]:
    entities = Entities(
        (Exchange("e", "topic"),),
        (Queue("q", {"x-queue-type": "quorum"}),),
        (Binding("e", "q", "queue", "k"),),
        (Policy("p", "^q$", {"message-ttl": 1}),),
    )
    made = parsed(entities)
    for each in made:
        if each["kind"] == kind:
            each["spec"] |= spec
            each["spec"] = {key: value for key, value in each["spec"].items() if value is not None}
    return made


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        (changed("Queue", autoDelete=True), "Queue 'q': .* durable and stay"),
        (changed("Exchange", durable=False), "Exchange 'e': .* durable and stay"),
        (changed("Queue", arguments={"x-queue-type": "classic"}), "Queue 'q': type is not that"),
        (changed("Policy", pattern=None), "Policy 'p': its spec has no 'pattern'"),
        ([{"kind": "Vhost", "apiVersion": "rabbitmq.com/v1beta1", "spec": {}}], "Vhost None: .* such kind"),
        ([{"kind": "Queue", "apiVersion": "v1", "spec": {}}], "Queue None: no object of rabbitmq.com"),
        ([{"kind": "Queue", "apiVersion": "rabbitmq.com/v1beta1"}], "Queue None: no object"),
    ],
)  # fmt: skip
def test_an_object_that_is_no_entity_is_refused_by_name(documents: Any, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        read_manifests(documents)


def test_a_policy_key_is_left_out_for_a_release_that_refuses_it() -> None:
    both = WorkQueue("q", LADDER, consumer_timeout_s=7_200, message_ttl_s=5)
    policies = (*compile_topology(PATIENT).policies, *compile_topology(Topology((both,))).policies)

    old, left_out = known_policies(policies, (3, 10))
    new, nothing = known_policies(policies, (3, 12))

    assert [(policy.name, policy.definition) for policy in old] == [("redrive.q", {"message-ttl": 5_000})]
    assert left_out == (("redrive.patient", "consumer-timeout"), ("redrive.q", "consumer-timeout"))
    assert (new, nothing) == (policies, ())


@pytest.mark.parametrize(("text", "release"), [("3.10", (3, 10)), ("4.3.6", (4, 3)), ("4.0-rc.1", (4, 0))])
def test_a_release_is_read(text: str, release: tuple[int, int]) -> None:
    assert parse_release(text) == release


def test_the_command_says_what_it_leaves_out_and_how_to_get_it() -> None:
    old = run("render", "definitions", topology="tests.support.field_jobs:PATIENT")
    new = run("render", "definitions", "--target", "4.3", topology="tests.support.field_jobs:PATIENT")

    assert (old.exit_code, new.exit_code) == (0, 0)
    assert (
        "left out: consumer-timeout of policy redrive.patient, which RabbitMQ 3.10 refuses (--target)"
        in old.stderr
    )
    assert json.loads(old.stdout)["policies"] == []
    assert json.loads(new.stdout)["policies"][0]["definition"] == {"consumer-timeout": 7_200_000}
    assert new.stderr == ""


def test_the_commands_write_what_the_functions_make(tmp_path: Path) -> None:
    file = tmp_path / "made"
    assert run("render", "definitions", "--vhost", "shop", "-o", str(file)).exit_code == 0
    assert file.read_text() == definitions_text(ENTITIES["samples"], "shop")
    shown = run("render", "manifests", "--cluster", "rabbit", "--vhost", "shop")
    assert list(yaml.safe_load_all(shown.stdout)) == parsed(ENTITIES["samples"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("definitions", "--target", "3.9"), 2, "older than the oldest"),
        (("definitions", "--target", "new"), 2, "no RabbitMQ release"),
        (("manifests",), 2, "--cluster"),
        (("definitions", "-o", "/no/such/folder/file"), 1, "/no/such/folder/file: No such file"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = run("render", *arguments)
    assert done.exit_code == code
    assert words in done.stderr


def test_a_topology_that_cannot_be_built_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_queue.py").write_text(
        "from topology.spec import Topology, WorkQueue\nTOPOLOGY = Topology((WorkQueue('a', watermark='x'),))"
    )
    (tmp_path / "broken_module.py").write_text("TOPOLOGY = {}['a']")
    queue = run("render", "definitions", topology="broken_queue:TOPOLOGY")
    module = run("render", "definitions", topology="broken_module:TOPOLOGY")

    assert (queue.exit_code, module.exit_code) == (2, 2)
    assert queue.stderr.startswith(
        "REDRIVE_TOPOLOGY=broken_queue:TOPOLOGY: queue 'a': watermark is 'x'; it must be"
    )
    assert module.stderr == "REDRIVE_TOPOLOGY=broken_module:TOPOLOGY: KeyError: 'a'\n"


@pytest.mark.parametrize("name", ["shop", "shop:", ":TOPOLOGY"])
def test_a_topology_without_module_or_attribute_says_what_it_looks_like(name: str) -> None:
    done = CliRunner(env={"REDRIVE_TOPOLOGY": name}).invoke(main, ["graph"])
    assert (done.exit_code, done.stderr) == (2, f"REDRIVE_TOPOLOGY={name}: must look like module:ATTRIBUTE\n")


def test_a_dash_is_standard_output_and_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(env={"REDRIVE_TOPOLOGY": None})
    dash, plain = (runner.invoke(main, ["graph", *more]) for more in (["-o", "-"], []))
    assert (dash.exit_code, dash.stdout) == (0, plain.stdout)
    assert list(tmp_path.iterdir()) == []
