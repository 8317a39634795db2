"""The topology that this process was started with: as JSON, as Mermaid, as a picture."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.auth import Context, Reader
from api.filtering import Text
from api.json_text import JsonResponse
from api.negotiation import preferred
from api.problems import Problem
from api.runtime import Config
from topology.entities import compile_topology
from topology.errors import UnknownQueueError
from topology.graph.picture import picture
from topology.render.description import description

router = APIRouter(tags=["queues"], dependencies=[Reader])

Form = Literal["json", "mermaid", "svg"]
# https://www.iana.org/assignments/media-types
TYPES: dict[str, Form] = {"application/json": "json", "image/svg+xml": "svg", "text/vnd.mermaid": "mermaid"}
# Opened by itself, a picture runs nothing and fetches nothing.
ALONE = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


@router.get("/topology", summary="Queues, ladders and bindings: JSON, Mermaid, SVG")
async def show(
    request: Request,
    runtime: Context,
    form: Annotated[Form | None, Query(alias="format", description="goes before Accept")] = None,
    queue: Annotated[Text | None, Query(description="one work queue")] = None,
) -> Response:
    """As this process was started with it, whatever the broker has: `topology verify` compares the two.

    `format`, else `Accept`, chooses `application/json`, `image/svg+xml` or `text/vnd.mermaid`; 406 when it
    takes none of them. JSON has each work queue with its limits and the names derived from it, the jobs, and
    all exchanges, queues, bindings and policies. In Mermaid a ladder is one node, unless one queue is drawn.
    404 when there is no such `queue`.
    """
    accept = ",".join(request.headers.getlist("accept"))
    chosen = form or TYPES.get(preferred(accept, list(TYPES)) or "")
    if chosen is None:
        raise Problem(406, "not-acceptable", f"Accept takes none of {', '.join(TYPES)}")
    # In a thread, as there may be thousands of queues.
    return await asyncio.to_thread(_rendered, runtime.config, chosen, queue)


def _rendered(config: Config, form: Form, queue: str | None) -> Response:
    vary = {"Vary": "Accept"}
    entities = compile_topology(config.topology, config.time_scale)
    try:
        if form == "json":
            return JsonResponse(description(config.topology, entities, queue), headers=vary)
        text = picture(config.topology, entities, form, queue)
    except UnknownQueueError as error:
        raise Problem(404, "unknown-queue", str(error)) from error
    if form == "svg":
        return Response(text, media_type="image/svg+xml", headers=vary | ALONE)
    return Response(text, media_type="text/vnd.mermaid; charset=utf-8", headers=vary)
