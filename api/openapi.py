"""The OpenAPI document: FastAPI's, with the answers that routes can give and the catalogue's payloads."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from topology.spec import Topology

MODELS = "#/components/schemas/{model}"
PROBLEM = "Problem"
# Of an answer to whoever has a key; what is wrong with a parameter or a body; what is not there.
WITH_KEY, WITH_VALUES, WITH_BODY, WITH_PLACE = (401, 403, 429, 503), (422,), (400, 408, 413, 415, 422), (404,)
# Of any answer: what came was too long.
TOO_LONG = (414, 431)
TOO_OFTEN = 429
LIMIT_HEADERS = {
    "Retry-After": {"schema": {"type": "integer"}, "description": "seconds"},
    "RateLimit": {"schema": {"type": "string"}, "description": 'such as "requests";r=0;t=4'},
    "RateLimit-Policy": {"schema": {"type": "string"}, "description": 'such as "requests";q=2000;w=2'},
}
SUBMISSIONS = ("/jobs", "/jobs/batch")
# Here the body names what there may not be, and nothing is in the way.
NAMED_IN_THE_BODY = "alerts"
# A group is named by the first digits of its fingerprint: of two that begin so, neither is meant.
BY_A_GROUPS_BEGINNING = ("/groups/{fingerprint}", "/alerts/snooze", "/alerts/unsnooze")
FULL = {
    "description": "The database is away, or the outbox is full: nothing is known to be stored, try again.",
    "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
}
PROBLEM_SCHEMA = {
    "type": "object",
    "description": "RFC 9457",
    "required": ["type", "title", "status", "detail", "errors"],
    "properties": {
        "type": {"type": "string", "example": "urn:redrive:problem:invalid"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
        "more_errors": {"type": "integer", "description": "faults beyond the ones listed"},
    },
}


def describe(app: FastAPI, topology: Topology) -> None:
    """Have `app` serve this document. It is made once, when it is asked for."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            app.openapi_schema = _completed(made, topology)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's own way to change it


def _completed(document: dict[str, Any], topology: Topology) -> dict[str, Any]:
    models = document.setdefault("components", {}).setdefault("schemas", {})
    for replaced in ("HTTPValidationError", "ValidationError"):
        models.pop(replaced, None)
    models[PROBLEM] = PROBLEM_SCHEMA
    for path, method, operation in _operations(document):
        answers = operation["responses"]
        answers.pop("422", None)  # FastAPI's, which is never given
        for status in _problems(path, method, operation):
            answers[str(status)] = {
                "description": HTTPStatus(status).phrase,
                "content": {"application/problem+json": {"schema": {"$ref": MODELS.format(model=PROBLEM)}}},
            }
            if status == TOO_OFTEN:
                answers[str(status)]["headers"] = LIMIT_HEADERS
        if path in SUBMISSIONS and method == "post":
            answers["503"] |= FULL
    payloads = {job.name: job.payload for job in topology.jobs}
    kinds = [(model, "validation") for model in dict.fromkeys(payloads.values())]
    found, definitions = models_json_schema(kinds, ref_template=MODELS)  # type: ignore[arg-type]
    models |= definitions.get("$defs", {})
    schemas = {name: found[model, "validation"] for name, model in payloads.items()}
    for path in SUBMISSIONS:
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        if path == "/jobs":
            body["schema"] = _one_of(body["schema"], schemas)
        else:
            jobs = body["schema"]["properties"]["jobs"]
            body["schema"]["properties"] = {"jobs": jobs | {"items": _one_of(jobs["items"], schemas)}}
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _problems(path: str, method: str, operation: dict[str, Any]) -> list[int]:
    found: set[int] = set(TOO_LONG)
    if operation.get("security"):
        found.update(WITH_KEY)
    if operation.get("parameters"):
        found.update(WITH_VALUES)
    if "{" in path:
        found.update(WITH_PLACE)
    if "requestBody" in operation:
        found.update(WITH_BODY)
        if path not in SUBMISSIONS:
            found.add(404 if NAMED_IN_THE_BODY in operation["tags"] else 409)
    if path in BY_A_GROUPS_BEGINNING:
        found.add(409)
    if path == "/jobs/{job_id}/result":
        found.add(409)
    if path == "/topology":
        found.update((404, 406))
    if path == "/readyz":
        found.add(503)
    return sorted(found)


def _one_of(job: dict[str, Any], payloads: dict[str, Any]) -> dict[str, Any]:
    """The schema of a submission, as one for each job type."""

    def of(name: str, payload: dict[str, Any]) -> dict[str, Any]:
        return job | {
            "title": name,
            "properties": job["properties"] | {"type": {"const": name}, "payload": payload},
        }

    return {"oneOf": [of(name, payload) for name, payload in payloads.items()]}
