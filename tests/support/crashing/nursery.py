"""A process that has imported a program and forks one after the other: a start in no time.

`dlq`: `dlq consume`; `api`: the API under uvicorn, at the port of its settings' PORT.

Orders come as lines of JSON on standard input, each is answered by a line: see `orders.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.support.crashing.points import API, CONSUMER, Watched, die_at, note_in, watch

Program = tuple[Watched, Callable[[], NoReturn]]


def main() -> None:
    program = {"dlq": _dlq, "api": _api}[sys.argv[1]]()
    for line in sys.stdin:
        order = json.loads(line)
        answer = _start(order, program) if order["what"] == "start" else _state(order["pid"])
        print(json.dumps(answer), flush=True)


def _start(order: dict[str, Any], program: Program) -> int:
    if pid := os.fork():
        return pid
    try:
        _run(order, program)
    finally:
        os._exit(70)


def _state(pid: int) -> int | None:
    """Exit code, negative after a signal; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _run(order: dict[str, Any], program: Program) -> NoReturn:
    watched, run = program
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(order["environment"])
    if order["points"]:
        watch(note_in(Path(order["points"])), watched)
    elif order["die_at"]:
        watch(die_at(order["die_at"]), watched)
    run()


def _dlq() -> Program:
    from dlq_consumer.cli import main as dlq

    def run() -> NoReturn:
        try:
            dlq(["consume"])
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 1)
        os._exit(0)

    return CONSUMER, run


def _api() -> Program:
    import uvicorn

    import api.application  # noqa: F401 - what takes long; `api.app` reads the settings

    def run() -> NoReturn:
        config = uvicorn.Config("api.app:app", port=int(os.environ["PORT"]), access_log=False)
        # Not by `uvicorn.run`, which has loops of its own.
        asyncio.run(uvicorn.Server(config).serve())
        os._exit(0)

    return API, run


if __name__ == "__main__":
    main()
