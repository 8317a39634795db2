"""Waiting for an event or for a time, whichever comes first."""

from __future__ import annotations

import asyncio
import contextlib


async def event_or_timeout(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
