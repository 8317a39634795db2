"""The sink: POST anywhere to deliver, GET /_received, /_failed and /_refused to look.

`PUT /_failures` with a list of statuses makes the next deliveries fail with them, one each.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from dev.loopback_http import Request, Response
from dev.sink.signature import DELIVERY, HEADER, BadSignatureError, verify

Failure = Annotated[int, Field(ge=300, le=599)]


@dataclass
class Sink:
    """`received`: signed right and taken. `failed`: signed right, answered as told. `refused`: the rest."""

    secret: str
    received: list[dict[str, object]] = field(default_factory=list)
    failed: list[dict[str, object]] = field(default_factory=list)
    refused: list[dict[str, object]] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)

    async def handle(self, request: Request) -> Response | None:
        match (request.method, request.path):
            case ("GET", "/_received"):
                return Response.of(self.received)
            case ("GET", "/_failed"):
                return Response.of(self.failed)
            case ("PUT", "/_failures"):
                return self._told(request.json())
            case ("GET", "/_refused"):
                return Response.of(self.refused)
            case ("POST", _):
                return self._deliver(request)
            case _:
                return Response.of({"detail": f"there is no {request.method} {request.path}"}, 404)

    def _deliver(self, request: Request) -> Response:
        arrival: dict[str, object] = {
            "at": time.time(),
            "path": request.path,
            "delivery": request.headers.get(DELIVERY.lower()),
            "body": request.json(),
        }
        try:
            verify(request.headers.get(HEADER.lower()), request.body, self.secret, time.time())
        except BadSignatureError as error:
            self.refused.append({**arrival, "why": str(error)})
            return Response.of({"detail": str(error)}, 401)
        if self.failures:
            status = self.failures.pop(0)
            self.failed.append({**arrival, "answered": status})
            return Response.of({"detail": "told to fail"}, status)
        self.received.append(arrival)
        return Response(204)

    def _told(self, statuses: object) -> Response:
        try:
            self.failures = TypeAdapter(list[Failure]).validate_python(statuses)
        except ValidationError as error:
            return Response.of({"errors": error.errors(include_url=False, include_input=False)}, 422)
        return Response(204)
