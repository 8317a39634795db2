"""Strongly connected components (Tarjan), without recursion: a chain may be 10,000 queues long."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

N = TypeVar("N", bound=Hashable)
K = TypeVar("K", bound=Hashable)


def components(nodes: Iterable[N], onward: Callable[[N], Iterable[N]]) -> Iterator[list[N]]:
    """Those that hold a cycle: more than one node, or a node that leads to itself."""
    index: dict[N, int] = {}
    low: dict[N, int] = {}
    stack: list[N] = []
    on_stack: set[N] = set()
    for root in nodes:
        if root in index:
            continue
        work: list[tuple[N, Iterator[N]]] = [(root, iter(onward(root)))]
        loops: set[N] = set()
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for following in rest:
                if following == node:
                    loops.add(node)
                if following not in index:
                    index[following] = low[following] = len(index)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(onward(following))))
                    break
                if following in on_stack:
                    low[node] = min(low[node], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = _popped(stack, on_stack, node)
                    if len(part) > 1 or node in loops:
                        yield part


def _popped(stack: list[N], on_stack: set[N], node: N) -> list[N]:
    part: list[N] = []
    while not part or part[-1] != node:
        part.append(stack.pop())
        on_stack.discard(part[-1])
    return part


def sharing(parts: Iterable[Sequence[N]], key: Callable[[N], K]) -> list[list[list[N]]]:
    """Parts that have a key in common, directly or through others, together."""
    leader: dict[K, K] = {}

    def lead(at: K) -> K:
        while leader.setdefault(at, at) != at:
            leader[at] = leader[leader[at]]
            at = leader[at]
        return at

    listed = [list(part) for part in parts]
    for part in listed:
        for node in part[1:]:
            leader[lead(key(node))] = lead(key(part[0]))
    groups: dict[K, list[list[N]]] = {}
    for part in listed:
        groups.setdefault(lead(key(part[0])), []).append(part)
    return list(groups.values())
