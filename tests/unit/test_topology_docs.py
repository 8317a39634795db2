"""docs/topology.md: its tables have every field with its default, and its example is a topology."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from pathlib import Path

import pytest

from topology.entities import compile_topology
from topology.errors import InvalidTopologyError
from topology.ladder import ticks_for
from topology.spec import Ladder, Topology, WorkQueue

TEXT = (Path(__file__).parents[2] / "docs" / "topology.md").read_text(encoding="utf-8")
WORDS = {None: "none", "": "empty", False: "no"}


def table(heading: str) -> dict[str, str]:
    part = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\|", part, re.MULTILINE))


def defaults(kind: type) -> dict[str, str]:
    found = {}
    for field in dataclasses.fields(kind):
        if field.default_factory is not dataclasses.MISSING:
            found[field.name] = f"`{field.type}()`"
        elif field.default is dataclasses.MISSING:
            found[field.name] = ""
        elif isinstance(field.default, str) and field.default:
            found[field.name] = f"`{field.default}`"
        else:
            found[field.name] = next(
                (
                    word
                    for value, word in WORDS.items()
                    if field.default is value or field.default == value == ""
                ),
                str(field.default),
            )
    return found


@pytest.mark.parametrize(("heading", "kind"), [("A work queue", WorkQueue), ("A ladder", Ladder)])
def test_a_table_has_every_field_with_its_default(heading: str, kind: type) -> None:
    assert table(heading) == defaults(kind)


def test_the_example_is_a_topology() -> None:
    code = re.search(r"^    from pydantic.*?^    \)$", TEXT, re.MULTILINE | re.DOTALL)
    assert code is not None
    names: dict[str, object] = {}
    exec(textwrap.dedent(code[0]), names)
    topology = names["TOPOLOGY"]
    assert isinstance(topology, Topology)
    assert {policy.name for policy in compile_topology(topology).policies} == {
        "redrive.quotes",
        "redrive.exports",
    }


def test_the_message_in_the_text_is_the_one_that_comes() -> None:
    with pytest.raises(InvalidTopologyError) as refused:
        WorkQueue("orders", Ladder(steps=21))
    assert f"`{refused.value}`" in TEXT


def test_the_delay_that_the_pages_on_the_management_ui_spell_takes_those_steps() -> None:
    told = (Path(__file__).parents[2] / "docs" / "management-ui.md").read_text(encoding="utf-8")
    (asked, real, first, second) = re.findall(
        r"A delay of (\d+) s is rounded up to (\d+) s: the job waits in `\.(\d+)s`, then in `\.(\d+)s`", told
    )[0]
    ladder = Ladder()
    ticks = ticks_for(int(asked), ladder)
    bits = [ladder.tick_ms << bit for bit in range(ladder.steps) if ticks >> bit & 1]
    assert ticks * ladder.tick_ms == int(real) * 1000
    assert bits == [int(second) * 1000, int(first) * 1000]
