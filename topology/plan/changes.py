"""What a comparison says: changes with have and want, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from topology import exits

Kind = Literal["conflict", "create", "set", "left out", "warning", "left over", "extra"]
EntityKind = Literal["exchange", "queue", "binding", "policy"]


@dataclass(frozen=True)
class Difference:
    """One argument, or one of `durable`, `auto_delete`, `exclusive`, `internal`, `type`. None: not there."""

    argument: str
    have: object
    want: object


@dataclass(frozen=True)
class Change:
    """One entity of which something is to be said.

    Attributes:
        kind: `conflict`: it is there and is another one, and AMQP has no way to change it; `create`: missing,
            `apply` declares it; `set`: a policy of ours that `apply` puts right; `left out`: wanted, but this
            broker does not know it; `warning`: changes what an entity of ours does; `left over`: of a former
            topology; `extra`: somebody else's, for the record.
        name: of a binding `source → destination (routing key)`.
        note: what it means or what to do, where that is not plain.
    """

    kind: Kind
    entity: EntityKind
    name: str
    differences: tuple[Difference, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """Attributes: not_seen: what could not be compared, and why, in words."""

    changes: tuple[Change, ...]
    not_seen: tuple[str, ...] = ()

    def of(self, *kinds: Kind) -> Iterator[Change]:
        return (change for change in self.changes if change.kind in kinds)

    @property
    def conflicts(self) -> tuple[Change, ...]:
        return tuple(self.of("conflict"))

    @property
    def exit_code(self) -> int:
        if self.conflicts:
            return exits.CONFLICT
        return exits.CHANGES if any(self.of("create", "set")) else exits.DONE
