"""Strongly connected parts of a graph, and parts that share something."""

from __future__ import annotations

from itertools import permutations, product

from hypothesis import given
from hypothesis import strategies as st

from topology.lint.components import components, sharing

graphs = st.dictionaries(st.integers(0, 6), st.sets(st.integers(0, 6), max_size=4), max_size=7)


@given(graphs)
def test_nodes_that_reach_each_other_are_one_part(graph: dict[int, set[int]]) -> None:
    def reach(node: int) -> set[int]:
        found: set[int] = set()
        todo = list(graph.get(node, ()))
        while todo:
            at = todo.pop()
            if at not in found:
                found.add(at)
                todo += graph.get(at, ())
        return found

    expected = {
        frozenset({node, *(other for other in reach(node) if node in reach(other))})
        for node in graph
        if node in reach(node)
    }
    assert {frozenset(part) for part in components(graph, lambda node: graph.get(node, ()))} == expected


def test_a_long_chain_needs_no_recursion() -> None:
    (part,) = components(range(50_000), lambda node: [(node + 1) % 50_000])
    assert len(part) == 50_000


def test_parts_in_a_row_that_share_something_are_together_in_whatever_order() -> None:
    parts = [["a1", "b1"], ["b2", "c1", "d1"], ["c2", "e1"]]
    for order in permutations(parts):
        for turned in product((1, -1), repeat=3):
            shuffled = [part[::turn] for part, turn in zip(order, turned, strict=True)]
            assert len(sharing(shuffled, lambda node: node[0])) == 1
    assert len(sharing([["a"], ["b"], ["a"]], lambda node: node)) == 2
