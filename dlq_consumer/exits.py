"""Exit codes of the `dlq` command."""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2
CONFLICT = 4
INTERRUPTED = 130
