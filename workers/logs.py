"""Log lines as the other processes write them: time, level, a text, then fields. No bodies, no secrets."""

from __future__ import annotations

import logging
import time
from typing import Any

from celery import signals
from celery.app.defaults import DEFAULT_PROCESS_LOG_FMT

FORMAT = "%(asctime)s %(levelname)s %(processName)s %(message)s"
# What every record has; the rest came in through `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldFormatter(logging.Formatter):
    """`2026-01-31T12:00:00Z INFO MainProcess duplicate acked action=duplicate job_id=… queue=payments`

    Only records with an `action` are ours: Celery's own fields hold the arguments of tasks.
    """

    converter = staticmethod(time.gmtime)

    def __init__(self, text: str) -> None:
        super().__init__(text, "%Y-%m-%dT%H:%M:%SZ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        line = super().formatMessage(record)
        fields = vars(record)
        if "action" not in fields:
            return line
        words = (f"{name}={_word(value)}" for name, value in fields.items() if name not in _OWN)
        return " ".join((line, *words))


def _word(value: object) -> str:
    text = str(value)
    return repr(text) if not text.isprintable() or " " in text or not text else text


def _show_fields(logger: logging.Logger, format: str, **_: Any) -> None:  # noqa: A002 - the signal's name
    """A `worker_log_format` of the adopter's is kept, the fields follow it."""
    text = FORMAT if format == DEFAULT_PROCESS_LOG_FMT else format
    for handler in logger.handlers:
        handler.setFormatter(FieldFormatter(text))


def install() -> None:
    """Have Celery's set-up of the worker's log end with our formatter. Idempotent."""
    signals.after_setup_logger.connect(_show_fields, dispatch_uid="redrive-log-fields")
