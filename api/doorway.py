"""Around every request and answer, faults of the server included."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import audited, visit
from api.visit import Visit


class Doorway:
    """What each answer carries, and what is on record of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        here = visit.begin(scope)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(message, here)
                if here.audit is not None:
                    await audited.end(scope["app"].state.runtime, here.audit, message["status"])
            await send(message)

        await self._app(scope, receive, answer)


def _complete(start: Message, here: Visit) -> None:
    headers = list(start.get("headers", ()))
    there = {name.lower() for name, _ in headers}
    for name, value in here.headers.items():
        if (lower := name.lower().encode()) not in there:
            headers.append((lower, value.encode("latin-1")))
    start["headers"] = headers


def install(app: FastAPI) -> None:
    """Outside of Starlette's own error handling, which no middleware that is added to an app is."""
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: Doorway(build())  # type: ignore[method-assign]
