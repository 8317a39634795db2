"""Exit codes, the same for every command and process."""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2  # a wrong option, or a wrong setting
CHANGES = 3  # something has to be changed first
CONFLICT = 4
RESTART = 75  # a worker that must be started again: threads of it do not come back
INTERRUPTED = 130
