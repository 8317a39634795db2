"""What the document says of one operation beside what FastAPI knows of its request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from api.openapi.schema import ref

JSON = "application/json"
EVENTS = "text/event-stream"
# Of those who have a key, unless limits are off.
WITH_EACH = ("RateLimit", "RateLimit-Policy")


@dataclass(frozen=True)
class Body:
    """One form of an answer. `shows`: a model, a schema, or None for a text.

    `events`: of server-sent events, what the data of each holds. `name`: where an answer has several forms.
    """

    shows: type[BaseModel] | Mapping[str, Any] | None
    example: Any
    media: str = JSON
    name: str = ""
    events: Mapping[str, type[BaseModel]] = field(default_factory=dict)

    @property
    def models(self) -> Iterator[type[BaseModel]]:
        if isinstance(self.shows, type):
            yield self.shows
        yield from self.events.values()

    @property
    def schema(self) -> dict[str, Any]:
        if isinstance(self.shows, type):
            return ref(self.shows.__name__)
        return {"type": "string"} if self.shows is None else dict(self.shows)


@dataclass(frozen=True)
class Answer:
    """What a status says. Without bodies it has none. `headers` are names of `components.headers`."""

    status: int
    description: str
    bodies: Sequence[Body] = ()
    headers: Sequence[str] = ()

    def shown(self, *, with_key: bool) -> dict[str, Any]:
        """As OpenAPI writes it."""
        headers = (*self.headers, *(WITH_EACH if with_key else ()))
        shown: dict[str, Any] = {"description": self.description}
        if headers:
            shown["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
        if self.bodies:
            media = dict.fromkeys(body.media for body in self.bodies)
            shown["content"] = {each: _content([b for b in self.bodies if b.media == each]) for each in media}
        return shown


def _content(bodies: Sequence[Body]) -> dict[str, Any]:
    if len(bodies) > 1:
        forms = {body.name: {"value": body.example} for body in bodies}
        schemas = [body.schema for body in bodies]
        return {"schema": schemas[0] if _are_one(schemas) else {"oneOf": schemas}, "examples": forms}
    (body,) = bodies
    shown = {"schema": body.schema, "example": body.example}
    if body.events:
        # OpenAPI 3.1 has no words for the events of a stream.
        shown["x-events"] = {name: ref(model.__name__) for name, model in body.events.items()}
    return shown


def _are_one(schemas: Sequence[dict[str, Any]]) -> bool:
    return all(schema == schemas[0] for schema in schemas)


@dataclass(frozen=True)
class Operation:
    """`id` is what generated clients call it: it stays. `problems`: names of `problems.EXAMPLES`, beside
    those that each operation of its form may answer."""

    id: str
    answers: Sequence[Answer]
    problems: Sequence[str] = ()


def one(
    shows: type[BaseModel] | Mapping[str, Any], example: Any, description: str, status: int = 200,
    headers: Sequence[str] = (),
) -> tuple[Answer, ...]:  # fmt: skip
    """The one answer of most operations: JSON in one form."""
    return (Answer(status, description, (Body(shows, example),), headers),)
