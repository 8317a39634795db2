"""Exit codes, the same for every command and process."""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2  # a wrong option, or a wrong setting
CHANGES = 3  # something has to be changed first
CONFLICT = 4
INTERRUPTED = 130
