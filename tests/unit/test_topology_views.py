"""A topology for programs and for eyes: JSON, Mermaid that a strict reader takes, and the type asked for."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from api.negotiation import preferred
from tests.support.mermaid import read
from tests.unit.test_graph import SHAPES, each_topology, graph, odd, run
from topology.catalogue import TOPOLOGY
from topology.entities import compile_topology
from topology.errors import UnknownQueueError
from topology.graph.mermaid import mermaid
from topology.graph.picture import picture
from topology.render.description import description
from topology.spec import WorkQueue


def described(name: str, queue: str | None = None) -> dict[str, Any]:
    return description(SHAPES[name], compile_topology(SHAPES[name]), queue)


@each_topology
def test_json_has_every_field_and_every_entity(name: str) -> None:
    shown, entities = described(name), compile_topology(SHAPES[name])
    assert json.loads(json.dumps(shown)) == shown
    assert [each["name"] for each in shown["queues"]] == [queue.name for queue in SHAPES[name].queues]
    assert {field.name for field in fields(WorkQueue)} <= shown["queues"][0].keys()
    for kind in ("exchanges", "queues", "policies"):
        assert [each["name"] for each in shown["entities"][kind]] == [e.name for e in getattr(entities, kind)]
    assert len(shown["entities"]["bindings"]) == len(entities.bindings)
    known = {each["name"] for kind in ("exchanges", "queues") for each in shown["entities"][kind]}
    for queue in shown["queues"]:
        steps = [step["name"] for step in queue["ladder"]["steps"]]
        derived = [queue["dead_letter_exchange"], queue["dead_letter_queue"], queue["ladder"]["due_exchange"]]
        assert {queue["name"], *steps, *derived} <= known


def test_json_tells_limits_steps_and_policies() -> None:
    (fresh,) = [each for each in described("fields")["queues"] if each["name"] == "fresh"]
    assert (fresh["type"], fresh["message_ttl_s"], fresh["policy"]) == ("quorum", 1.5, "redrive.fresh")
    (payments,) = [each for each in described("samples")["queues"] if each["name"] == "payments"]
    assert payments["policy"] is None
    assert payments["ladder"]["steps"][:2] == [
        {"name": "payments.retry.250ms", "delay_ms": 250},
        {"name": "payments.retry.500ms", "delay_ms": 500},
    ]
    assert payments["ladder"]["tick_ms"] == 250


def test_json_of_one_queue_has_what_hangs_on_it_and_no_more() -> None:
    shown = described("samples", "emails")
    assert [each["name"] for each in shown["queues"]] == ["emails"]
    assert [job["name"] for job in shown["jobs"]] == ["emails.send_email"]
    named = [each["name"] for kind in ("exchanges", "queues") for each in shown["entities"][kind]]
    assert len(named) == 2 + 2 + 2 + 2 * 12  # catch-all, dead letters, work and due, ladder
    assert all(name.startswith(("emails", "redrive.unrouted")) for name in named)
    # Of a shared ladder too, without those who share it.
    shared = described("fields", "ranked")["entities"]
    work = [each["name"] for each in shared["queues"] if not each["name"].startswith(("common", "redrive"))]
    assert sorted(work) == ["ranked", "ranked.dlq"]
    known = {each["name"] for kind in ("exchanges", "queues") for each in shared[kind]}
    assert {binding["destination"] for binding in shared["bindings"]} <= known
    with pytest.raises(UnknownQueueError):
        described("samples", "email")


@pytest.mark.parametrize("whole", [True, False])
@each_topology
def test_mermaid_is_read_back_as_the_graph(name: str, whole: bool) -> None:
    made = graph(name)
    chart = read(mermaid(made, whole=whole))
    names = [label.partition("\n")[0] for label in chart.nodes.values()]
    if not whole:
        assert names == [node.name for node in made.nodes]
    first = {at: label.partition("\n")[0] for at, label in chart.nodes.items()}
    drawn = {(first[source], first[target]) for source, _, target in chart.edges}
    assert drawn <= {(edge.source, edge.target) for edge in made.edges} or whole
    assert len(chart.edges) >= 5


@pytest.mark.parametrize(
    "name", ['a"b<i>&amp;#35;\\c', "a#quot;b", "end", "n1[x]", "a\nb", "`md` **b**", "%% x", "é→"]
)
def test_mermaid_keeps_odd_names(name: str) -> None:
    made = odd()
    (family,) = made.families
    (line,) = family.lines
    line = replace(line, work=replace(line.work, name=name, notes=()), key=name)
    chart = read(mermaid(replace(made, families=(replace(family, lines=(line,)),)), whole=False))
    assert name in chart.nodes.values()
    assert name in [label for _, label, _ in chart.edges]


@pytest.mark.parametrize(
    "text",
    [
        'flowchart TB\n  n0["a"b"]:::work\n',
        'flowchart TB\n  n0["a<i>"]:::work\n',
        "graph\n",
        "flowchart TB",
        "flowchart TB\n  n0 --> n1\n",
        'flowchart TB\n  subgraph f0 ["a"]\n',
        'flowchart TB\n  n0["a"]:::work\n',
    ],
)
def test_the_strict_reader_is_strict(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read(text)


def test_the_command_writes_json_and_pictures_of_the_same() -> None:
    entities = compile_topology(TOPOLOGY)
    assert json.loads(run("--format", "json").stdout) == described("samples")
    assert json.loads(run("--format", "json", "--queue", "emails").stdout) == described("samples", "emails")
    assert run("--format", "svg").stdout == picture(TOPOLOGY, entities, "svg")
    assert run("--queue", "emails").stdout == picture(TOPOLOGY, entities, "mermaid", "emails")
    assert run("--format", "json", "--queue", "emial").exit_code == 2


OFFERED = ("application/json", "image/svg+xml", "text/vnd.mermaid")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", 0), ("*/*", 0), ("image/svg+xml", 1), ("IMAGE/SVG+XML", 1), ("image/*", 1), ("text/*;q=0.1", 2),
        ("image/svg+xml;q=0.5, text/vnd.mermaid", 2), ("application/json;q=0, */*", 1), ("text/html", None),
        ("text/html, */*;q=0.1", 0), ("image/svg+xml;q=0.2,*/*;q=0.1", 1), ("*/*;q=0", None),
        ("text/html,application/xhtml+xml,image/avif,image/*;q=0.8,*/*;q=0.5", 1), (";;,,", None),
        ("image/svg+xml;q=x", 1), ("image/svg+xml ; q=0.9 , application/json;q=0.8", 1),
        (",".join(["a/b"] * 9_999), None),
    ],
)  # fmt: skip
def test_the_type_that_is_wanted_most_is_chosen(accept: str, expected: int | None) -> None:
    assert preferred(accept, OFFERED) == (None if expected is None else OFFERED[expected])
