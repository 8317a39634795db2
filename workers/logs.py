"""The worker's log in the form of the other processes' logs."""

from __future__ import annotations

import logging
from typing import Any

from celery import signals
from celery.app.defaults import DEFAULT_PROCESS_LOG_FMT

from topology.log_fields import FieldFormatter

FORMAT = "%(asctime)s %(levelname)s %(processName)s %(message)s"


def _show_fields(logger: logging.Logger, format: str, **_: Any) -> None:  # noqa: A002 - the signal's name
    """A `worker_log_format` of the adopter's is kept, the fields follow it.

    Those of our records alone: Celery's own fields hold the arguments of tasks.
    """
    text = FORMAT if format == DEFAULT_PROCESS_LOG_FMT else format
    for handler in logger.handlers:
        handler.setFormatter(FieldFormatter(text, needs_action=True))


def install() -> None:
    """Have Celery's set-up of the worker's log end with our formatter. Idempotent."""
    signals.after_setup_logger.connect(_show_fields, dispatch_uid="redrive-log-fields")
