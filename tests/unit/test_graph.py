"""The picture shows what is on the broker, all of it and nothing else, in three forms."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from tests.support.field_jobs import TOPOLOGY as FIELDS
from topology.catalogue import TOPOLOGY
from topology.cli import main
from topology.entities import Entities, compile_topology
from topology.graph.dot import dot
from topology.graph.mermaid import mermaid
from topology.graph.model import Graph, graph_of, only
from topology.graph.palette import EDGES, INK, NODES, PAPER, QUIET
from topology.graph.svg import svg
from topology.spec import Ladder, Topology, WorkQueue

ROOT = Path(__file__).parents[2]
SMALL = Topology((WorkQueue("jobs", Ladder(steps=2)),))
LONG = Topology(
    (WorkQueue("x" * 202 + ".end", Ladder(4_095, 20), message_ttl_s=1, consumer_timeout_s=7_200),)
)
SHAPES = {
    "samples": TOPOLOGY,
    "fields": FIELDS,
    "small": SMALL,
    "long": LONG,
    "mixed": Topology((*FIELDS.queues, *SMALL.queues, *LONG.queues, WorkQueue("one", Ladder(steps=1)))),
}
each_topology = pytest.mark.parametrize("name", SHAPES)
SVG = "{http://www.w3.org/2000/svg}"


def graph(name: str) -> Graph:
    return graph_of(compile_topology(SHAPES[name]))


def ways(entities: Entities) -> set[tuple[str, str]]:
    """Every way on the broker by which a message gets from one name to another."""
    found = {(each.source, each.destination) for each in entities.bindings}
    found |= {
        (queue.name, str(queue.arguments["x-dead-letter-exchange"]))
        for queue in entities.queues
        if "x-dead-letter-exchange" in queue.arguments
    }
    found |= {
        (exchange.name, str(exchange.arguments["alternate-exchange"]))
        for exchange in entities.exchanges
        if "alternate-exchange" in exchange.arguments
    }
    return {(source, target) for source, target in found if source != target}


@each_topology
def test_every_exchange_and_queue_is_one_node(name: str) -> None:
    entities = compile_topology(SHAPES[name])
    names = [node.name for node in graph(name).nodes]
    assert len(names) == len(set(names))
    known = {exchange.name for exchange in entities.exchanges} | {queue.name for queue in entities.queues}
    assert set(names) == known


@each_topology
def test_every_way_on_the_broker_is_an_edge_and_only_the_workers_retry_is_added(name: str) -> None:
    edges = list(graph(name).edges)
    assert {(edge.source, edge.target) for edge in edges if edge.role != "retried"} == ways(
        compile_topology(SHAPES[name])
    )
    assert len([edge for edge in edges if edge.role == "retried"]) == len(SHAPES[name].queues)


def test_a_graph_tells_what_there_is_to_say_of_a_queue() -> None:
    works = {line.work.name: line for family in graph("fields").families for line in family.lines}
    assert works["fresh"].work.notes == ("quorum", "delivery limit 20", "message ttl 1.5 s")
    assert works["fresh"].ways == ("rejected", "expired", "returned too often")
    assert works["ranked"].work.notes == ("classic", "priorities 0 to 5")
    assert works["ranked"].ways == ("rejected", "expired")
    assert works["alone"].work.notes[-1] == "single active consumer"


def test_one_queue_of_several_is_drawn_with_its_ladder_and_the_number_of_the_others() -> None:
    (family,) = only(graph("fields"), "ranked").families
    assert [line.work.name for line in family.lines] == ["ranked"]
    assert (family.others, len(family.steps), family.due.name) == (3, 6, "common.due")
    assert "shared with 3 more" in svg(only(graph("fields"), "ranked"), "ranked")


MERMAID = """\
flowchart TB
  subgraph f0 ["jobs"]
    n0["jobs<br/>quorum, delivery limit 20"]:::work
    n1{{"jobs.dlx"}}:::dlx
    n2[("jobs.dlq")]:::dlq
    n3(["jobs.retry.500ms"]):::step
    n4(["jobs.retry.250ms"]):::step
    n5{{"jobs.due"}}:::due
  end
  n6{{"redrive.unrouted"}}:::unrouted
  n7[("redrive.unrouted.dlq")]:::catch_all
  n0 ==>|"rejected, expired, returned too often"| n1
  n1 -->|"jobs"| n2
  n1 -.->|"no binding"| n6
  n0 -.->|"retry, by the worker"| n3
  n5 ==>|"due"| n0
  n3 -->|"500ms"| n4
  n3 -.->|"no binding, of any step"| n6
  n4 -->|"250ms"| n5
  n5 -.->|"no binding"| n6
  n6 -.-> n7
"""


def test_mermaid_of_one_queue_has_every_step() -> None:
    assert mermaid(graph("small"), whole=False).startswith(MERMAID)


def test_mermaid_of_a_whole_topology_has_a_node_for_each_ladder() -> None:
    drawn = mermaid(graph("samples"), whole=True)
    assert drawn.startswith("flowchart LR\n")
    assert '(["payments.retry.*<br/>12 steps: 250ms to 512s"]):::step' in drawn
    assert drawn.count(":::step") == 5


@pytest.mark.parametrize("whole", [True, False])
@each_topology
def test_dot_has_every_node_once_and_edges_between_nodes_only(name: str, whole: bool) -> None:
    drawn = dot(graph(name), whole=whole)
    nodes = re.findall(r'^ +"([^"]+)" \[label=', drawn, re.MULTILINE)
    ends = {end for edge in re.findall(r'^ +"([^"]+)" -> "([^"]+)"', drawn, re.MULTILINE) for end in edge}
    assert len(nodes) == len(set(nodes))
    assert ends <= set(nodes)
    if not whole:
        assert set(nodes) == {node.name for node in graph(name).nodes}


@pytest.mark.parametrize("whole", [True, False])
def test_graphviz_takes_dot(whole: bool) -> None:
    if shutil.which("dot") is None:
        pytest.skip("not run: Graphviz is not installed")
    text = dot(odd(), whole=whole)
    done = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "edge" in done.stdout


def odd() -> Graph:
    """Names that no spec lets pass: the writers escape them all the same."""
    made = graph("small")
    (family,) = made.families
    (line,) = family.lines
    name = 'a"b<i>&amp;#35;\\c'
    strange = replace(line, work=replace(line.work, name=name), key=name)
    return replace(made, families=(replace(family, lines=(strange,)),))


def test_what_a_name_holds_is_not_taken_for_markup() -> None:
    name = 'a"b<i>&amp;#35;\\c'
    titles = [each.text for each in ElementTree.fromstring(svg(odd(), name)).iter(f"{SVG}title")]
    assert titles.count(name) == 2
    assert '["a#quot;b#lt;i#gt;#amp;amp;#35;35;\\c<br/>quorum' in mermaid(odd(), whole=False)
    assert r'"a\"b<i>&amp;#35;\\c" [label="a\"b<i>&amp;#35;\\c\nquorum' in dot(odd(), whole=False)


@each_topology
def test_svg_is_xml_with_a_title_a_description_and_every_name(name: str) -> None:
    root = ElementTree.fromstring(svg(graph(name), "the title"))
    assert root.find(f"{SVG}title").text == "the title"  # type: ignore[union-attr]
    assert root.find(f"{SVG}desc").text  # type: ignore[union-attr]
    assert root.get("aria-labelledby") == "title desc"
    named = {each.text for each in root.iter(f"{SVG}title")}
    assert {node.name for node in graph(name).nodes} <= named


@each_topology
def test_nothing_of_an_svg_stands_outside_of_the_page(name: str) -> None:
    root = ElementTree.fromstring(svg(graph(name), "x" * 500))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for element in root.iter(f"{SVG}text"):
        letters, size = len(element.text or ""), float(element.get("font-size", 0))
        long = letters * size * (0.61 if element.get("class") else 0.5)
        shift = {"middle": 0.5}.get(element.get("text-anchor", ""), 0.0)
        left = float(element.get("x", 0)) - shift * long
        assert left >= 0, element.text
        assert left + long <= width, element.text
        assert 0 < float(element.get("y", 0)) <= height
    for element in root.iter(f"{SVG}path"):
        if element.get("marker-end"):
            for x, y in re.findall(r"[MLQ](-?[\d.]+) (-?[\d.]+)", element.get("d", "")):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height


def contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_words_and_lines_stand_out() -> None:
    for fill, stroke in NODES.values():
        assert min(contrast(INK, fill), contrast(QUIET, fill), contrast(stroke, fill)) >= 4.5
    for colour in (INK, QUIET, *EDGES.values()):
        assert min(contrast(colour, PAPER), contrast(colour, "#ffffff")) >= 4.5


def run(*arguments: str) -> Result:
    environment = {"REDRIVE_AMQP_URL": None, "REDRIVE_TOPOLOGY": None}
    return CliRunner(env=environment).invoke(main, ["graph", *arguments])


def test_the_command_draws_each_form_without_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "made.svg"
    assert run().stdout == mermaid(graph("samples"), whole=True)
    assert run("--format", "dot", "--queue", "emails").stdout == dot(
        only(graph("samples"), "emails"), whole=False
    )
    assert run("--format", "svg", "-o", str(file)).output == ""
    assert file.read_text() == svg(graph("samples"), "payments, inventory, reports, webhooks, emails")


def test_a_queue_that_is_not_there_is_told_with_those_that_are() -> None:
    done = run("--queue", "emial")
    assert done.exit_code == 2
    assert "no work queue 'emial'; there are: payments, " in done.stderr


def test_the_picture_in_the_documents_is_what_the_command_draws() -> None:
    kept = (ROOT / "docs" / "images" / "queue.svg").read_text(encoding="utf-8")
    assert run("--format", "svg", "--queue", "payments").stdout == kept
