"""The OpenAPI document: what FastAPI knows of requests, with answers and the payloads of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.auth import EITHER
from api.openapi import (
    alerts,
    audit,
    callbacks,
    ended,
    enums,
    groups,
    health,
    jobs,
    letters,
    problems,
    queues,
    replays,
    topology,
)
from api.openapi.operation import Operation
from api.openapi.schema import REF, components, ref
from api.openapi.words import ABOUT, HEADERS, PARAMETERS, SCHEME, TAGS
from topology.spec import Topology

OPERATIONS: Mapping[str, Operation] = {
    name: operation
    for part in (jobs, queues, topology, letters, groups, alerts, replays, callbacks, audit, health)
    for name, operation in part.OPERATIONS.items()
}


def describe(app: FastAPI, catalogue: Topology) -> None:
    """Have `app.openapi()` make this document, once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document_of(app, catalogue)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's own way to change it


def document_of(app: FastAPI, catalogue: Topology) -> dict[str, Any]:
    """The document.

    Raises:
        KeyError: a route of the app is not described.
    """
    made: dict[str, Any] = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=ABOUT,
        tags=TAGS,
        routes=app.routes,
    )
    schemas = _models()
    made["components"] = {
        "schemas": schemas,
        "responses": problems.shared(),
        "headers": HEADERS,
        "securitySchemes": SCHEME,
    }
    for path, method, operation in _operations(made):
        described = _described(f"{method.upper()} {path}")
        operation["operationId"] = described.id
        with_key = bool(operation.get("security"))
        if with_key:
            operation["security"] = _scopes(operation["security"])
        for parameter in operation.get("parameters", ()):
            if words := PARAMETERS.get(parameter["name"]):
                parameter.setdefault("description", words)
        if body := operation.get("requestBody"):
            content = body["content"]["application/json"]
            content["schema"] = _hoisted(content["schema"], schemas)
        operation["responses"] = {
            str(answer.status): answer.shown(with_key=with_key) for answer in described.answers
        } | problems.responses((*_of_its_form(described, operation), *described.problems))
    made["paths"]["/jobs"]["post"]["callbacks"] = ended.CALLBACKS
    _add_payloads(schemas, catalogue)
    whole: dict[str, Any] = enums.with_names(made)
    found = whole["components"]["schemas"] | enums.components()
    whole["components"]["schemas"] = dict(sorted(found.items()))
    return whole


def _described(name: str) -> Operation:
    try:
        return OPERATIONS[name]
    except KeyError:
        raise KeyError(
            f"{name}: what it answers has to stand in OPERATIONS of a module of api.openapi"
        ) from None


def _models() -> dict[str, Any]:
    answers = (answer for operation in OPERATIONS.values() for answer in operation.answers)
    shown = (model for answer in answers for body in answer.bodies for model in body.models)
    return components((problems.Problem, ended.JobEnded, *shown))


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _of_its_form(described: Operation, operation: Mapping[str, Any]) -> Iterator[str]:
    yield from problems.ALWAYS
    if operation.get("security"):
        yield from problems.WITH_KEY
    yield from problems.of_parameters([parameter["name"] for parameter in operation.get("parameters", ())])
    if "requestBody" in operation:
        own = any(name.startswith("invalid-") for name in described.problems)
        yield from (name for name in problems.WITH_BODY if name != "invalid-body" or not own)


def _scopes(found: list[dict[str, Any]]) -> list[dict[str, list[str]]]:
    """OpenAPI 3.1 lets a requirement name roles, whatever the scheme: one of these will do."""
    (names,) = (name for requirement in found for name in requirement)
    return [{name: [scope]} for scope in names.split(EITHER) for name in SCHEME]


def _hoisted(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """A body's schema as a reference; what it defines and itself stand among the document's schemas."""
    name = schema["title"]
    for each, defined in ({name: schema} | schema.pop("$defs", {})).items():
        if schemas.setdefault(each, defined) != defined:
            raise ValueError(f"two schemas have the name {each!r}")
    return ref(name)


def _add_payloads(schemas: dict[str, Any], catalogue: Topology) -> None:
    """A submission is one of as many forms as there are job types."""
    payloads = {job.name: job.payload for job in catalogue.jobs}
    found, defined = _schemas_of(payloads.values(), REF)
    ours = schemas.keys() | enums.NAMED.keys()
    if any(name in ours or name.endswith("Submission") for name in defined):  # somebody's own models
        prefixed = REF.format(model="Payload_{model}")
        found, defined = _schemas_of(payloads.values(), prefixed)
        defined = {f"Payload_{name}": schema for name, schema in defined.items()}
    schemas |= defined
    forms = {name: found[model] for name, model in payloads.items()}
    batch = schemas["Batch"]["properties"]["jobs"]
    schemas["Batch"]["properties"] = {"jobs": batch | {"items": ref("BatchedSubmission")}}
    schemas |= _one_of(batch["items"], forms) | _one_of(schemas["Submission"], forms)


def _schemas_of(models: Iterable[type[BaseModel]], template: str) -> tuple[dict[Any, Any], dict[str, Any]]:
    """A reference to each model, and what stands under their names."""
    kinds: list[Any] = [(model, "validation") for model in dict.fromkeys(models)]
    found, definitions = models_json_schema(kinds, ref_template=template)
    return {model: found[model, "validation"] for model, _ in kinds}, definitions.get("$defs", {})


def _one_of(job: dict[str, Any], payloads: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a submission, and that of each of its forms, one for each job type."""
    title, forms, mapping = job["title"], {}, {}
    for number, (name, payload) in enumerate(payloads.items(), 1):
        words = "".join(word[0].upper() + word[1:] for word in re.findall("[A-Za-z0-9]+", name))
        key = f"{words}{title}"
        key = f"{key}{number}" if key in forms else key  # names that differ in what is no letter
        forms[key] = job | {
            "title": key,
            "properties": job["properties"] | {"type": {"type": "string", "const": name}, "payload": payload},
        }
        mapping[name] = ref(key)["$ref"]
    whole = {
        "title": title,
        "oneOf": [ref(key) for key in forms],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    return {title: whole} | forms
