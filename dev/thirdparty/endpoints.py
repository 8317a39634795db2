"""What the third party does when all is well: payments, charges, stock levels, events, files, mail."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from dev.loopback_http import Request, Response


@dataclass
class Business:
    """Its books, in memory. Keyed endpoints do the same thing once per Idempotency-Key."""

    payments: list[object] = field(default_factory=list)
    charges: dict[str, dict[str, object]] = field(default_factory=dict)
    emails: dict[str, dict[str, object]] = field(default_factory=dict)
    events: list[dict[str, object]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def answer(self, request: Request) -> Response:
        first, _, rest = request.path.lstrip("/").partition("/")
        match (request.method, first, rest):
            case ("POST", "payments", ""):
                self.payments.append(request.json())
                return Response.of({"id": f"payment-{len(self.payments)}"}, 201)
            case ("POST", "charges", ""):
                return _once(self.charges, request, "charge")
            case ("POST", "emails", ""):
                return _once(self.emails, request, "email")
            case ("GET", "inventory", sku) if sku:
                # Made up, but the same each time.
                return Response.of({"sku": sku, "level": zlib.crc32(sku.encode()) % 500})
            case ("POST", "webhooks", event) if event:
                self.events.append({"event_id": event, "body": request.json()})
                return Response.of({"event_id": event})
            case (_, "files", name) if name:
                return self._file(request, name)
            case _:
                return Response.of({"detail": f"there is no {request.method} {request.path}"}, 404)

    def _file(self, request: Request, name: str) -> Response:
        match request.method:
            case "PUT":
                status = 200 if name in self.files else 201
                self.files[name] = request.body
                return Response.of({"name": name, "size": len(request.body)}, status)
            case "GET" | "HEAD" if name in self.files:
                return Response(200, self.files[name], {"Content-Type": "application/octet-stream"})
            case "GET" | "HEAD":
                return Response.of({"detail": f"there is no file {name}"}, 404)
            case _:
                return Response.of({"detail": f"{request.method} is not for files"}, 405)


def _once(book: dict[str, dict[str, object]], request: Request, kind: str) -> Response:
    """201 for a new key, 200 and the same entry for a known one, 422 for a known key with another body."""
    key, body = request.headers.get("idempotency-key"), request.json()
    if not key:
        return Response.of({"detail": "Idempotency-Key is missing"}, 400)
    if known := book.get(key):
        same = known["body"] == body
        return Response.of(known, 200) if same else Response.of({"detail": f"{key} had another body"}, 422)
    book[key] = {"id": f"{kind}-{len(book) + 1}", "key": key, "body": body}
    return Response.of(book[key], 201)
