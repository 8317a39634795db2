"""Log lines as every process of ours writes them: time, level, a text, then fields. No bodies, no secrets."""

from __future__ import annotations

import logging
import time

# What every record has; the rest came in through `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldFormatter(logging.Formatter):
    """`2026-01-31T12:00:00Z INFO stored dead letters action=letters_stored letters=3`

    Args:
        text: the part before the fields, as `logging.Formatter` takes it.
        needs_action: show the fields only of records that have an `action`: those are ours, where another
            library's may hold what belongs in no log.
    """

    converter = staticmethod(time.gmtime)

    def __init__(
        self, text: str = "%(asctime)s %(levelname)s %(message)s", *, needs_action: bool = False
    ) -> None:
        super().__init__(text, "%Y-%m-%dT%H:%M:%SZ")
        self._needs_action = needs_action

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        line, fields = super().formatMessage(record), vars(record)
        if self._needs_action and "action" not in fields:
            return line
        words = (f"{name}={_word(value)}" for name, value in fields.items() if name not in _OWN)
        return " ".join((line, *words))


def _word(value: object) -> str:
    text = str(value)
    return repr(text) if not text.isprintable() or " " in text or not text else text
