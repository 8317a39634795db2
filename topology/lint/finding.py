"""What the linter has to say: one finding, the same in text, JSON and SARIF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One way in which a message is lost or loops, or one setting that is not what it seems.

    Attributes:
        code: stable, in capitals, e.g. `DLX-UNROUTABLE`; `topology explain CODE` tells of it.
        severity: error: lost, or refused by the broker; warning: lost under a normal condition, or dead
            configuration; info: for the report only.
        entity: what it is about, e.g. `queue 'orders'`.
        path: the evidence, one step each: `queue 'orders' rejects`, `exchange 'dlx' (direct), key 'orders'`.
        versions: the RabbitMQ versions it holds for, e.g. `3.10+`, `<4.0`, `4.3+`.
    """

    code: str
    severity: Severity
    vhost: str
    entity: str
    path: tuple[str, ...]
    message: str
    fix: str
    versions: str
