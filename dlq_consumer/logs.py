"""Where the consumer's log goes."""

from __future__ import annotations

import logging

from topology.log_fields import FieldFormatter


def configure() -> None:
    """Everything from INFO up to standard error; the HTTP client's own chatter only as warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(FieldFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)
