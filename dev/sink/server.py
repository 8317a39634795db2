"""The sink: POST anywhere to deliver, GET /_received and /_refused to look."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dev.loopback_http import Request, Response
from dev.sink.signature import DELIVERY, HEADER, BadSignatureError, verify


@dataclass
class Sink:
    secret: str
    received: list[dict[str, object]] = field(default_factory=list)
    refused: list[dict[str, object]] = field(default_factory=list)

    async def handle(self, request: Request) -> Response | None:
        match (request.method, request.path):
            case ("GET", "/_received"):
                return Response.of(self.received)
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
        self.received.append(arrival)
        return Response(204)
