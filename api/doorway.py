"""Around every request and answer, faults of the server included."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import audited, slashes, visit
from api.problems import FieldError, Problem
from api.visit import Visit

# Bytes; below what uvicorn takes (64 KiB of head), which answers without a reason.
MAX_URL, MAX_HEADERS_SIZE = 8_192, 16_384
MAX_HEADERS = 100
CLOSE = {"Connection": "close"}
# Answers are private, no page, and of no use to another site. Swagger UI of /docs comes from a CDN.
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
DOCS_POLICY = (
    b"default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; style-src 'unsafe-inline'"
    b" https://cdn.jsdelivr.net; img-src data: https://fastapi.tiangolo.com; connect-src 'self';"
    b" frame-ancestors 'none'"
)
DOCS = "/docs"
# Said over https alone, as RFC 6797 (7.2) has it.
HSTS = (b"strict-transport-security", b"max-age=31536000")


class Doorway:
    """What is let in, what each answer carries, and what is on record of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = slashes.kept(scope)
        here = visit.begin(scope)
        if _is_framed_twice(scope):
            here.headers |= CLOSE

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(message, here, scope)
                if here.audit is not None:
                    await audited.end(scope["app"].state.runtime, here.audit, message["status"])
            await send(message)

        try:
            if problem := _too_large(scope):
                await problem.response()(scope, receive, answer)
            else:
                await self._app(scope, receive, answer)
        finally:
            for done in here.at_end:
                done()


def _too_large(scope: Scope) -> Problem | None:
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL:
        fault = FieldError("url", f"is longer than {MAX_URL} bytes")
        return Problem(414, "url-too-long", f"the URL {fault.message}", [fault], CLOSE)
    headers = scope["headers"]
    if len(headers) > MAX_HEADERS:
        fault = FieldError("headers", f"are more than {MAX_HEADERS}")
    elif sum(len(name) + len(value) for name, value in headers) > MAX_HEADERS_SIZE:
        fault = FieldError("headers", f"are longer than {MAX_HEADERS_SIZE} bytes together")
    else:
        return None
    return Problem(431, "headers-too-large", f"the headers {fault.message}", [fault], CLOSE)


def _is_framed_twice(scope: Scope) -> bool:
    """The length means nothing then, but a proxy in front may have read it: RFC 9112, 6.1: close."""
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}


def _complete(start: Message, here: Visit, scope: Scope) -> None:
    headers = list(start.get("headers", ()))
    there = {name.lower() for name, _ in headers}
    if scope["path"] == DOCS and b"content-security-policy" not in there:
        headers.append((b"content-security-policy", DOCS_POLICY))
        there.add(b"content-security-policy")
    headers += [each for each in HEADERS if each[0] not in there]
    if scope["scheme"] == "https":
        headers.append(HSTS)
    for name, value in here.headers.items():
        if (lower := name.lower().encode()) not in there:
            headers.append((lower, value.encode("latin-1")))
    start["headers"] = headers


def install(app: FastAPI) -> None:
    """Outside of Starlette's own error handling, which no middleware that is added to an app is."""
    build = app.build_middleware_stack
    app.build_middleware_stack = lambda: Doorway(build())  # type: ignore[method-assign]
