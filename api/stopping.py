"""Told to stop: known while requests still run, so that endless answers can end."""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stop_event() -> asyncio.Event:
    """Set when the server gets SIGINT or SIGTERM. To be called while the server starts.

    uvicorn ends the lifespan only when every answer is complete, and has no hook before; its own signal
    handlers are called as before.
    """
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return event  # no signals come here
    for number in _SIGNALS:
        before = signal.getsignal(number)

        def told(number: int, frame: FrameType | None, before: object = before) -> None:
            loop.call_soon_threadsafe(event.set)
            if callable(before):
                before(number, frame)

        signal.signal(number, told)
    return event
