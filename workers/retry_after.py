"""`Retry-After` for tasks: see `outbound.retry_after`."""

from __future__ import annotations

from outbound.retry_after import DEFAULT_S, LONGEST_S, retry_after_s

__all__ = ["DEFAULT_S", "LONGEST_S", "retry_after_s"]
