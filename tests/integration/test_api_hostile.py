"""Requests that nobody means well, at every route, through a real uvicorn process, RabbitMQ and Postgres."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tests.support.api_alone import api_alone
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from topology.catalogue import TOPOLOGY

# Of each kind and route: all of it takes about a minute on a slow machine.
EXAMPLES = 6
# These answer for as long as one reads.
ENDLESS = ("/stream", "/jobs/{job_id}/events")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
WRITTEN = ("jobs", "outbox", "idempotency_keys", "job_actions", "letter_actions", "replays", "alert_snoozes")
NESTED = b"[" * 100_000


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    with api_alone(places, REDRIVE_API_DOCS="true") as shared:
        yield shared


def taking_bodies(api: httpx.Client) -> list[tuple[str, str]]:
    paths: dict[str, Any] = api.get("/openapi.json").json()["paths"]
    return [
        (method, path.replace("{", "").replace("}", ""))
        for path, item in paths.items()
        for method, operation in item.items()
        if "requestBody" in operation
    ]


def test_no_body_is_too_odd_for_any_route_and_nothing_is_stored(running: Stack) -> None:
    api = running.http
    cases: list[tuple[bytes, dict[str, str], int, str]] = [
        (b'{"note": NaN}', {}, 422, "note"),
        (b'{"a": {"note": -Infinity}}', {}, 422, "a.note"),
        (b'{"note": 1e400}', {}, 422, "note"),
        (b'{"note": 1, "note": 2}', {}, 422, "note"),
        (b'{"a": [1, {"b": 1, "b": 1}]}', {}, 422, "a.1.b"),
        (b'{"n": ' + b"9" * 10_000 + b"}", {}, 422, "n"),
        (NESTED, {}, 422, "body"),
        (NESTED + b"]" * 100_000, {}, 422, "body"),
        (b'{"a":' * 100_000, {}, 422, "body"),
        (b"", {}, 400, "body"),
        (b'{"note": "\xff"}', {}, 400, "body"),
        (b"\xef\xbb\xbf{}", {}, 400, "body"),
        (b"{'note': 1}", {}, 400, "body"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "Content-Type"),
        (b"{}", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "Content-Type"),
        (b"{}", {"Content-Type": "application/json; charset=latin-1"}, 415, "Content-Type"),
        (b"{}", {"Content-Type": ""}, 415, "Content-Type"),
    ]
    routes = taking_bodies(api)
    assert len(routes) > 10
    for method, path in routes:
        # A place is looked at before the body: one that is a number or a UUID is not what is wrong.
        url = path.replace("letter_id", "1").replace("callback_id", str(UUID(int=0)))
        for body, headers, status, field in cases:
            answer = api.request(
                method, url, content=body, headers={"Content-Type": "application/json", **headers}
            )
            told = (method, url, body[:30], answer.status_code, answer.text[:300])
            assert answer.status_code == status, told
            assert answer.headers["content-type"] == "application/problem+json", told
            assert answer.json()["errors"][0]["field"] == field, told
            assert len(answer.content) < 2_000, told
    rows = {table: running.database.value(f"select count(*) from redrive.{table}") for table in WRITTEN}
    assert rows == dict.fromkeys(WRITTEN, 0)


def test_notes_with_what_postgres_refuses_are_refused_and_named(running: Stack) -> None:
    payload = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
    job = running.submit("payments.charge_order", payload, "k")
    for what in ("cancel", "retry"):
        for note in (rb'"a\u0000"', rb'"\ud800"', b"5", b"null", b'["x"]'):
            headers = {"Content-Type": "application/json"}
            answer = running.http.post(
                f"/jobs/{job}/{what}", content=b'{"note": ' + note + b"}", headers=headers
            )
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "note"), note
    assert running.job(job)["actions"] == []


def test_the_document_has_the_payload_of_each_job_type(running: Stack) -> None:
    document = running.http.get("/openapi.json").json()
    jobs = document["paths"]["/jobs"]["post"]["requestBody"]["content"]["application/json"]
    batch = document["paths"]["/jobs/batch"]["post"]["requestBody"]["content"]["application/json"]
    names = sorted(job.name for job in TOPOLOGY.jobs)
    assert jobs["schema"] == {"$ref": "#/components/schemas/Submission"}
    assert batch["schema"] == {"$ref": "#/components/schemas/Batch"}
    schemas = document["components"]["schemas"]
    assert schemas["Batch"]["properties"]["jobs"]["items"] == {
        "$ref": "#/components/schemas/BatchedSubmission"
    }
    for schema in (schemas["Submission"], schemas["BatchedSubmission"]):
        forms = [schemas[each["$ref"].rpartition("/")[2]] for each in schema["oneOf"]]
        assert sorted(each["properties"]["type"]["const"] for each in forms) == names
        for each in forms:
            model = each["properties"]["payload"]["$ref"].rpartition("/")[2]
            assert document["components"]["schemas"][model]["properties"]
    assert jobs["example"]["type"] in names
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]["application/json"]
                assert "example" in content, (method, path)
            assert operation["summary"], (method, path)


def test_no_request_gets_a_5xx_or_an_answer_that_the_document_does_not_name(running: Stack) -> None:
    schema: OpenApiSchema = schemathesis.openapi.from_url(f"{running.http.base_url}/openapi.json")
    key = running.http.headers["Authorization"]

    def with_key(sent: Any) -> Any:
        sent.headers["Authorization"] = key  # last, so that no generated header goes before it
        return sent

    answers: Counter[int] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # the document is valid, or this raises
        if operation.path in ENDLESS:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(
                max_examples=EXAMPLES, derandomize=True, database=None, deadline=None,
                phases=[Phase.generate], suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case[Any]) -> None:
                answer = case.call(auth=with_key, timeout=60)
                answers[answer.status_code] += 1
                case.validate_response(answer, checks=CHECKS)

            try:
                ask()
            except Unsatisfiable:  # without parameters nothing can be wrong
                assert mode is GenerationMode.NEGATIVE
    # That the requests got as far as the routes: accepted, refused by their form, and for what they name.
    assert {200, 202, 404, 422} <= answers.keys(), answers
    assert answers[401] == 0, answers
