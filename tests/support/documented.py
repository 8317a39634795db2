"""Answers held against the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import httpx
from jsonschema_rs import Draft202012Validator

from tests.unit.test_api_doors import application

JSON, PROBLEM = "application/json", "application/problem+json"
# What a hook of a client does not read.
UNREAD = ("text/event-stream", "application/x-ndjson", "text/html")
# Of a path or a method that there is not, and of a defect of the server: no operation documents them.
BESIDE = {404: "not-found", 405: "method-not-allowed", 500: "internal"}


class Document:
    """The document, by operation."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.whole = document
        self._paths = sorted(((_pattern(path), path) for path in document["paths"]), key=_parameters_last)
        self._validators: dict[str, Draft202012Validator] = {}

    def operation(self, method: str, path: str) -> tuple[str, dict[str, Any]] | None:
        """Such as `GET /jobs/{job_id}`, and what is said of it."""
        for pattern, template in self._paths:
            found = self.whole["paths"][template].get(method.lower())
            if found is not None and pattern.fullmatch(path):
                return f"{method} {template}", found
        return None

    def resolved(self, found: dict[str, Any]) -> dict[str, Any]:
        """What a reference leads to."""
        while "$ref" in found:
            place: Any = self.whole
            for name in found["$ref"].removeprefix("#/").split("/"):
                place = place[name]
            found = place
        return found

    def faults(self, schema: Mapping[str, Any], value: Any) -> list[str]:
        """Where `value` is not what the schema says."""
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            whole = {**schema, "components": self.whole["components"]}
            self._validators[key] = Draft202012Validator(whole, validate_formats=True)
        return [
            f"{'.'.join(map(str, fault.instance_path)) or 'value'}: {fault.message}"[:500]
            for fault in self._validators[key].iter_errors(value)
        ]

    def answer_faults(self, answer: httpx.Response) -> list[str]:
        """Where an answer is not what the document says of its operation."""
        media = answer.headers.get("content-type", "").partition(";")[0]
        # Ids of jobs may have an escaped slash in them.
        raw = answer.url.raw_path.decode().partition("?")[0]
        path = raw if raw.startswith("/jobs/") else answer.url.path
        found = self.operation(answer.request.method, path)
        documented = None if found is None else found[1]["responses"].get(str(answer.status_code))
        if documented is None:
            kind = BESIDE.get(answer.status_code)
            if kind and media == PROBLEM and answer.json()["type"] == f"urn:redrive:problem:{kind}":
                return self.faults({"$ref": "#/components/schemas/Problem"}, answer.json())
            return [f"{answer.status_code} is not documented: {answer.text[:300]}"]
        content = self.resolved(documented).get("content", {})
        if not content:
            return [] if not answer.content else ["the document says nothing of a body"]
        if media not in content:
            return [f"{media} is not among {list(content)}"]
        return self.body_faults(content[media], media, answer.text)

    def body_faults(self, content: Mapping[str, Any], media: str, text: str) -> list[str]:
        """Where a body is not what is said of its media type."""
        if media == "text/event-stream":
            return [
                f"{name}: {fault}"
                for name, data in events(text)
                for fault in self.faults(content["x-events"][name], data)
            ]
        value: Any = json.loads(text) if media in (JSON, PROBLEM) else text
        told = self.faults(content["schema"], value)
        if media == PROBLEM and value["type"] not in kinds(content):
            told.append(f"{value['type']} is not among {sorted(kinds(content))}")
        return told


def kinds(content: Mapping[str, Any]) -> set[str]:
    """The types of problem that are shown."""
    return {example["value"]["type"] for example in content["examples"].values()}


def events(text: str) -> Iterator[tuple[str, Any]]:
    """Name and data of each server-sent event."""
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            yield fields["event"], json.loads(fields["data"])


@cache
def document() -> Document:
    """That of the sample catalogue."""
    return Document(application(docs=True).openapi())


def hold(answer: httpx.Response) -> None:
    """A hook of a client: each answer is what the document says. What may be endless is not read."""
    media = answer.headers.get("content-type", "").partition(";")[0]
    if answer.request.method == "HEAD" or media in UNREAD or answer.url.path == "/openapi.json":
        return
    answer.read()
    told = document().answer_faults(answer)
    assert not told, (answer.request.method, str(answer.url), answer.status_code, told)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(
        "".join(
            "[^/]+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{[^}]+\})", path)
        )
    )


def _parameters_last(found: tuple[re.Pattern[str], str]) -> tuple[int, str]:
    return found[1].count("{"), found[1]
