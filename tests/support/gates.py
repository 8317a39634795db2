"""Jobs that go on once their test says so."""

from __future__ import annotations

import time
from pathlib import Path


def wait_for(gate: str) -> None:
    """Until there is a file of that name; without a name, not at all."""
    while gate and not Path(gate).exists():
        time.sleep(0.05)
