"""What is linted: a definitions file, standard input, a live broker, or a topology in code."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from topology.errors import TopologyError
from topology.lint.definitions import Definitions
from topology.lint.document import MAX_BYTES
from topology.lint.places import Places

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_IN_CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
STANDARD_INPUT = "-"


class _InAVhost(Protocol):
    @property
    def vhost(self) -> str: ...


E = TypeVar("E", bound=_InAVhost)


class WrongSourceError(TopologyError):
    """Nothing of that name can be linted, or it has no such virtual host."""


@dataclass(frozen=True)
class Loaded:
    """Definitions, and what is known of where they come from.

    Attributes:
        file: the path, where findings have a place in a file.
        unseen: what of a live broker could not be read, a sentence each.
    """

    definitions: Definitions
    file: str | None = None
    places: Places | None = None
    unseen: tuple[str, ...] = ()


def load(source: str, vhost: str | None = None) -> Loaded:
    """Read what `source` names: `-`, a URL, a file, or `module:ATTRIBUTE`.

    Raises:
        WrongSourceError: there is no such thing, or no virtual host `vhost` in it.
        NotDefinitionsError: a file that is something else.
        ManagementError: a broker that does not answer or refuses.
        InvalidManagementUrlError: a URL that is none of a management API.
        InvalidTopologyError: code that is no topology.
    """
    loaded = _loaded(source, vhost)
    return loaded if vhost is None else replace(loaded, definitions=_only(loaded.definitions, vhost))


def _loaded(source: str, vhost: str | None) -> Loaded:
    if not source:
        raise WrongSourceError("the source is empty: name a file, a URL or module:ATTRIBUTE, or leave it out")
    if _URL.match(source):
        return _of_a_broker(source, vhost)
    if source != STANDARD_INPUT and _IN_CODE.fullmatch(source) and not Path(source).exists():
        return _of_code(source)
    # Imported here, as what speaks HTTP or declares is: each costs a part of a second to import.
    from topology.lint.read import read_with_places

    definitions, places = read_with_places(_bytes(source), _shown(source))
    return Loaded(definitions, None if source == STANDARD_INPUT else source, places)


def _of_a_broker(url: str, vhost: str | None) -> Loaded:
    if not url.lower().startswith(("http://", "https://")):
        scheme = url.partition("://")[0]
        raise WrongSourceError(
            f"a broker is linted through its management API: http://user:password@host:15672, not {scheme}://"
        )
    from topology.lint.live import read_broker

    live = read_broker(url, vhost)
    return Loaded(live.definitions, unseen=live.unseen)


def _of_code(source: str) -> Loaded:
    from topology.entities import compile_topology
    from topology.lint.from_topology import from_entities
    from topology.settings import import_topology

    return Loaded(from_entities(compile_topology(import_topology(source, source)), source))


def _shown(source: str) -> str:
    return "standard input" if source == STANDARD_INPUT else source


def _bytes(source: str) -> bytes:
    """Never more than one byte over the most that is read."""
    if source == STANDARD_INPUT:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(source).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise WrongSourceError(f"{source}: {reason}") from None


def _only(definitions: Definitions, vhost: str) -> Definitions:
    """What is in one virtual host; the users go, who are in none."""
    vhosts = tuple(found for found in definitions.vhosts if found.name == vhost)
    kept = replace(
        definitions,
        vhosts=vhosts,
        queues=_in(vhost, definitions.queues),
        exchanges=_in(vhost, definitions.exchanges),
        bindings=_in(vhost, definitions.bindings),
        policies=_in(vhost, definitions.policies),
        parameters=_in(vhost, definitions.parameters),
        users=(),
        problems=tuple(problem for problem in definitions.problems if problem.vhost in ("", vhost)),
    )
    if not (vhosts or kept.queues or kept.exchanges or kept.bindings or kept.policies):
        known = {found.name for found in definitions.vhosts} | {queue.vhost for queue in definitions.queues}
        raise WrongSourceError(
            f"{definitions.source}: no virtual host {vhost!r}; "
            f"there {'are' if len(known) != 1 else 'is'} {', '.join(map(repr, sorted(known))) or 'none'}"
        )
    return kept


def _in(vhost: str, entities: tuple[E, ...]) -> tuple[E, ...]:
    return tuple(entity for entity in entities if entity.vhost == vhost)
