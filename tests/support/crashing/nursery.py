"""A process that has imported `dlq` and forks one `dlq consume` after the other: a start in no time.

Orders come as lines of JSON on standard input, each is answered by a line: see `orders.py`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from dlq_consumer.cli import main as dlq
from tests.support.crashing.points import die_at, note_in, watch


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        answer = _start(order) if order["what"] == "start" else _state(order["pid"])
        print(json.dumps(answer), flush=True)


def _start(order: dict[str, Any]) -> int:
    if pid := os.fork():
        return pid
    try:
        _consume(order)
    finally:
        os._exit(70)


def _state(pid: int) -> int | None:
    """Exit code, negative after a signal; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _consume(order: dict[str, Any]) -> NoReturn:
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(order["environment"])
    if order["points"]:
        watch(note_in(Path(order["points"])))
    elif order["die_at"]:
        watch(die_at(order["die_at"]))
    try:
        dlq(["consume"])
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    os._exit(0)


if __name__ == "__main__":
    main()
