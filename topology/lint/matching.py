"""Which bindings of one exchange a message takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from topology.lint.definitions import Binding
from topology.lint.keys import ANY_PATTERN, Keys, Pattern, exactly, intersection, matches, topic
from topology.lint.topic_tree import TopicTree

Headers = Mapping[str, object]
HeadersMatch = Literal["always", "never", "undecided"]

# Plugins' types that give each message to every binding, and those that pick one of them.
SPREADING = ("fanout", "x-recent-history")
CHOOSING = ("x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random")


@dataclass(frozen=True)
class Hit:
    """A binding that messages take.

    Attributes:
        keys: which of them.
        certain: False where it depends on the message's headers, or the exchange's type is not known.
        one_of: the exchange picks one of several.
    """

    binding: Binding
    keys: Keys
    certain: bool = True
    one_of: bool = False


class BindingIndex:
    """The bindings of one exchange, by what they match. `dangling`: others lead to nothing."""

    def __init__(self, routes_as: str, bindings: Sequence[Binding], dangling: bool = False) -> None:
        self.routes_as, self.dangling = routes_as, dangling
        self._bindings = bindings
        self._exact: dict[str, list[Binding]] = defaultdict(list)
        self._tree: TopicTree[tuple[Binding, Pattern]] = TopicTree()
        if routes_as == "direct":
            for binding in bindings:
                self._exact[binding.routing_key].append(binding)
        elif routes_as == "topic":
            for binding in bindings:
                pattern = topic(binding.routing_key)
                self._tree.add(pattern, (binding, pattern))

    def hits(self, pattern: Pattern, headers: Headers | None = None) -> list[Hit]:
        """`headers`: the message's own; None: not known."""
        if self.routes_as == "direct":
            return self._direct(pattern)
        if self.routes_as == "topic":
            return self._topic(pattern)
        same: Keys = frozenset({pattern})
        if self.routes_as in SPREADING:
            return [Hit(binding, same) for binding in self._bindings]
        if self.routes_as in CHOOSING:
            several = len({(one.destination_type, one.destination) for one in self._bindings}) > 1
            return [Hit(binding, same, one_of=several) for binding in self._bindings]
        if self.routes_as == "headers":
            matched = ((binding, headers_match(binding.arguments, headers)) for binding in self._bindings)
            return [Hit(binding, same, match == "always") for binding, match in matched if match != "never"]
        return [Hit(binding, same, certain=False) for binding in self._bindings]

    def covers(self, hits: Iterable[Hit]) -> list[Pattern]:
        """What the certain ones of these match, for `keys.uncovered`."""
        read: Callable[[str], Pattern]
        if self.routes_as == "direct":
            read = exactly
        elif self.routes_as == "topic":
            read = topic
        else:
            return [ANY_PATTERN] if any(hit.certain for hit in hits) else []
        return [read(hit.binding.routing_key) for hit in hits if hit.certain]

    def _direct(self, pattern: Pattern) -> list[Hit]:
        if pattern.exact:
            return [Hit(binding, frozenset({pattern})) for binding in self._exact.get(pattern.text, ())]
        return [
            Hit(binding, frozenset({exactly(key)}))
            for key, bindings in self._exact.items()
            if matches(pattern, key)
            for binding in bindings
        ]

    def _topic(self, pattern: Pattern) -> list[Hit]:
        found = self._tree.meeting(pattern)
        if pattern.exact:
            return [Hit(binding, frozenset({pattern})) for binding, _ in found]
        return [Hit(binding, intersection(pattern, own)) for binding, own in found]


def headers_match(arguments: Headers, headers: Headers | None) -> HeadersMatch:
    """Whether a headers binding takes a message (rabbit_exchange_type_headers).

    Without `x-match` all must match; arguments that begin with `x-` count only for `all-with-x` and
    `any-with-x`, and what `x-` headers a message has is never known here: the broker adds some.
    """
    kind = arguments.get("x-match", "all")
    with_x = kind in ("all-with-x", "any-with-x")
    wanted = {name: value for name, value in arguments.items() if with_x or not name.startswith("x-")}
    wanted.pop("x-match", None)
    need_all = kind not in ("any", "any-with-x")
    if not wanted:
        return "always" if need_all else "never"
    results = [_header(name, value, headers) for name, value in wanted.items()]
    if need_all:
        return "never" if "never" in results else "undecided" if "undecided" in results else "always"
    return "always" if "always" in results else "undecided" if "undecided" in results else "never"


def _header(name: str, wanted: object, headers: Headers | None) -> HeadersMatch:
    if headers is None or name.startswith("x-") or isinstance(wanted, (list, dict, float)):
        return "undecided"
    if name not in headers:
        return "never"
    value = headers[name]
    if wanted is None:  # no value: the header only has to be there
        return "always"
    return "always" if type(value) is type(wanted) and value == wanted else "never"
