"""Log lines: a short text, then the fields that programs look for."""

from __future__ import annotations

import logging
import sys

FIELDS = ("action", "job_id", "queue", "outbox_id")


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name)]
        text = super().format(record)
        return f"{text} [{' '.join(fields)}]" if fields else text


def configure_logging() -> None:
    """Send our loggers to standard error. Uvicorn configures only its own."""
    logger = logging.getLogger("redrive")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
