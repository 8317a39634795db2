"""Log lines: time, level, a short text, then fields. No bodies, no secrets."""

from __future__ import annotations

import logging
import time

# What every record has; the rest came in through `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldFormatter(logging.Formatter):
    """`2026-01-31T12:00:00Z INFO stored dead letters action=letters_stored letters=3`"""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields = {name: value for name, value in vars(record).items() if name not in _OWN}
        words = [super().formatMessage(record), *(f"{name}={_word(value)}" for name, value in fields.items())]
        return " ".join(words)


def _word(value: object) -> str:
    text = str(value)
    return repr(text) if not text.isprintable() or " " in text or not text else text


def configure() -> None:
    """Everything from INFO up to standard error; the HTTP client's own chatter only as warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(FieldFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)
