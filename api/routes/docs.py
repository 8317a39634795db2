"""The OpenAPI document, and a page to try it out."""

from __future__ import annotations

import asyncio
import json

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response

OPENAPI = "/openapi.json"


def docs_router(app: FastAPI) -> APIRouter:
    """`/openapi.json` of `app` and `/docs`, without a key."""
    router = APIRouter(include_in_schema=False)
    made: list[bytes] = []
    making = asyncio.Lock()

    def make() -> bytes:
        return json.dumps(app.openapi(), separators=(",", ":")).encode()

    @router.get(OPENAPI)
    async def openapi() -> Response:
        """Made once and in a thread, as it takes a while."""
        async with making:
            if not made:
                made.append(await asyncio.to_thread(make))
        return Response(made[0], media_type="application/json")

    @router.get("/docs")
    async def page() -> HTMLResponse:
        # Relative, so that it is found behind a proxy that adds a path.
        return get_swagger_ui_html(openapi_url=OPENAPI.removeprefix("/"), title=app.title)

    return router
