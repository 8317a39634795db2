"""One event loop in a thread, so that sync and async tests share helpers that speak asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The loop; its thread ends with the interpreter."""
    made = asyncio.new_event_loop()
    threading.Thread(target=made.run_forever, name="tests-background", daemon=True).start()
    return made


def run(coroutine: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
    """Run a coroutine on the background loop and wait for its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, loop()).result(timeout_s)
