"""The OpenAPI document says what each operation answers, and shows it."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from api.openapi import problems, story
from api.openapi.document import OPERATIONS, document_of
from storage.letter_line import parse
from tests.support.documented import PROBLEM, Document
from tests.unit.test_api_doors import application
from topology.catalogue import TOPOLOGY

API = Path(__file__).parents[2] / "api"
# These stay as they are: generated clients call operations by them.
IDS = """
add_group_note cancel_job cancel_replay create_replay discard_dead_letter discard_dead_letters
edit_dead_letter export_dead_letters get_alert get_callback get_dead_letter get_dead_letter_stats get_group
get_job get_job_result get_liveness get_metrics get_queue get_readiness get_replay get_topology ignore_group
list_alerts list_audit list_callbacks list_dead_letters list_groups list_job_types list_jobs list_queues
list_replays
pause_replay reopen_group resolve_group restore_dead_letter restore_dead_letters resume_replay retry_callback
retry_job snooze_alerts submit_job submit_jobs test_alert_channels unsnooze_alerts watch_dead_letters
watch_job withdraw_dead_letter_edit
"""
# Open on purpose: what belongs to an action, and schemas that are not ours to close.
OPEN = {"LetterStep"}


@pytest.fixture(scope="module")
def document() -> Document:
    return Document(application(docs=True).openapi())


def operations(document: Document) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document.whole["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def answers(document: Document) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Operation, status, and what is said of it."""
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            yield name, status, document.resolved(answer)


def contents(document: Document) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Operation with status, media type, and what is said of it."""
    for name, status, answer in answers(document):
        for media, content in answer.get("content", {}).items():
            yield f"{name} {status}", media, content


def examples(content: dict[str, Any]) -> list[Any]:
    if "example" in content:
        return [content["example"]]
    return [each["value"] for each in content["examples"].values()]


def test_each_operation_is_described_and_nothing_else(document: Document) -> None:
    assert {name for name, _ in operations(document)} == OPERATIONS.keys()
    assert len(OPERATIONS) > 40


def test_each_answer_has_a_schema_and_an_example(document: Document) -> None:
    bare = {f"{name} {status}" for name, status, answer in answers(document) if not answer.get("content")}
    assert bare == {"GET /jobs/{job_id}/events 204"}
    for where, media, content in contents(document):
        # A result is whatever its task returned.
        assert content["schema"] or where == "GET /jobs/{job_id}/result 200", (where, media)
        assert examples(content), (where, media)
    for name, operation in operations(document):
        assert any(status.startswith("2") for status in operation["responses"]), name


def test_each_refusal_is_a_problem_with_an_example_of_its_status(document: Document) -> None:
    for name, status, answer in answers(document):
        if status[0] in "45" and name != "GET /readyz":
            (media, content), *others = answer["content"].items()
            assert (media, others) == (PROBLEM, []), (name, status)
            assert {example["status"] for example in examples(content)} == {int(status)}, (name, status)


def test_each_answer_to_come_again_for_says_when(document: Document) -> None:
    headers = {
        f"{name} {status}": answer.get("headers", {})
        for name, status, answer in answers(document)
        if status in {"429", "503"}
    }
    assert len(headers) > 50
    assert [where for where, shown in headers.items() if "Retry-After" not in shown] == []


def test_each_parameter_that_may_be_wrong_is_in_the_answers(document: Document) -> None:
    for name, operation in operations(document):
        bounded = {
            parameter["name"]
            for parameter in operation.get("parameters", ())
            if parameter["schema"].get("type") != "string" or parameter["schema"].keys() - {"type", "title"}
        }
        taken = bounded - {"Idempotency-Key"} or "requestBody" in operation  # that one is a 400
        assert ("422" in operation["responses"]) is bool(taken), name


def test_each_example_is_what_its_schema_says(document: Document) -> None:
    for where, media, content in contents(document):
        for example in examples(content):
            spelled = example if isinstance(example, str) else json.dumps(example)
            assert document.body_faults(content, media, spelled) == [], (where, media)
            if media == "text/event-stream":
                names = set(re.findall("^event: (.*)$", example, re.MULTILINE))
                assert names == content["x-events"].keys(), where
    for name, operation in operations(document):
        if "requestBody" in operation:
            content = operation["requestBody"]["content"]["application/json"]
            assert document.faults(content["schema"], content["example"]) == [], name


def test_what_a_receiver_is_told_is_shown_beside_the_submission(document: Document) -> None:
    (told,) = document.whole["paths"]["/jobs"]["post"]["callbacks"]["job.ended"].values()
    content = told["post"]["requestBody"]["content"]["application/json"]
    assert document.faults(content["schema"], content["example"]) == []


def test_the_examples_tell_one_story(document: Document) -> None:
    ids = {value for value in vars(story).values() if isinstance(value, str)}
    told = json.dumps([examples(content) for _, _, content in contents(document)])
    uuids = set(re.findall(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", told))
    edited = {uuid for uuid in uuids if uuid.startswith("7e6d5c4b")}
    assert uuids - edited <= ids
    assert story.JOB in uuids
    assert set(re.findall(r'"letter_id": (\d+)', told)) == {str(story.LETTER)}


def test_an_exported_line_is_one_that_can_be_imported(document: Document) -> None:
    _, operation = document.operation("GET", "/dead-letters/export") or ("", {})
    line = operation["responses"]["200"]["content"]["application/x-ndjson"]["example"]
    assert parse(line.encode()).job_id == story.JOB


def test_operations_keep_their_names_and_say_what_they_need(document: Document) -> None:
    found = [operation["operationId"] for _, operation in operations(document)]
    assert sorted(found) == IDS.split()
    tags = {tag["name"] for tag in document.whole["tags"]}
    for name, operation in operations(document):
        assert operation["summary"], name
        assert set(operation["tags"]) <= tags, name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (name, parameter["name"])
    summaries = Counter(operation["summary"] for _, operation in operations(document))
    assert [summary for summary, times in summaries.items() if times > 1] == []
    assert {tag for _, operation in operations(document) for tag in operation["tags"]} == tags
    assert "servers" not in document.whole


def test_each_operation_names_its_scope(document: Document) -> None:
    found = {
        name: [scope for each in operation.get("security", ()) for scope in each["ApiKey"]]
        for name, operation in operations(document)
    }
    assert {name for name, scopes in found.items() if not scopes} == {"GET /healthz", "GET /readyz"}
    assert found["POST /jobs"] == found["POST /jobs/batch"] == ["submit"]
    assert found["POST /jobs/{job_id}/cancel"] == ["submit", "operate"]
    assert found["GET /audit"] == ["operate"]
    kinds = Counter((name.split()[0], *scopes) for name, scopes in found.items())
    assert kinds.keys() >= {("GET", "read"), ("POST", "operate")}
    assert kinds[("GET", "operate")] == 1
    assert kinds[("POST", "read")] == 0
    assert document.whole["components"]["securitySchemes"].keys() == {"ApiKey"}


def test_schemas_are_closed_and_none_is_there_twice(document: Document) -> None:
    schemas: dict[str, Any] = document.whole["components"]["schemas"]
    payloads = {job.payload.__name__ for job in TOPOLOGY.jobs}
    open_ = {
        name
        for name, schema in schemas.items()
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False
    }
    assert open_ - payloads == OPEN
    assert [name for name in schemas if not re.fullmatch("[A-Z][A-Za-z]+", name)] == []
    spelled = Counter(
        json.dumps({key: value for key, value in schema.items() if key != "title"}, sort_keys=True)
        for schema in schemas.values()
    )
    assert [schema[:200] for schema, times in spelled.items() if times > 1] == []


def test_a_set_of_values_has_one_name(document: Document) -> None:
    found = Counter(re.findall(r'"enum": (\[[^]]+\])', json.dumps(document.whole)))
    assert [values for values, times in found.items() if times > 1] == []


def test_each_reference_leads_somewhere_and_each_component_is_used(document: Document) -> None:
    named = set(re.findall(r'"\$ref": "#/components/([^"]+)"', json.dumps(document.whole)))
    there = {
        f"{kind}/{name}"
        for kind, found in document.whole["components"].items()
        if kind != "securitySchemes"
        for name in found
    }
    assert named == there
    assert "#/$defs" not in json.dumps(document.whole)


def test_each_problem_that_the_code_raises_is_shown_and_no_other() -> None:
    raised = {
        (call.args[0].value, call.args[1].value)
        for file in API.rglob("*.py")
        if file.parent.name not in ("openapi", "client")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "Problem"
        and len(call.args) > 2
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[1], ast.Constant)
    }
    shown = {(problem.status, problem.kind) for problem in problems.EXAMPLES.values()}
    # Of a defect nothing is promised; of a text that is no JSON the status is found out.
    assert raised - shown == {(500, "internal")}
    assert shown - raised == {(400, "not-json")}
    used = {name for operation in OPERATIONS.values() for name in operation.problems}
    by_form = {*problems.ALWAYS, *problems.WITH_KEY, *problems.WITH_BODY}
    by_form |= {f"invalid-{name}" for name in problems.WRONG_VALUES}
    assert problems.EXAMPLES.keys() == used | by_form


@pytest.mark.parametrize("name", ["Job", "JobState", "Submission", "PaymentsCallPaymentApiSubmission"])
def test_a_payload_may_have_the_name_of_one_of_our_schemas(name: str) -> None:
    before = document_of(application(), TOPOLOGY)["components"]["schemas"]
    job = replace(TOPOLOGY.jobs[0], payload=create_model(name, order=(int, ...)))
    schemas = document_of(application(), replace(TOPOLOGY, jobs=(job,)))["components"]["schemas"]
    (form,) = (each["$ref"].rpartition("/")[2] for each in schemas["Submission"]["oneOf"])
    assert schemas[form]["properties"]["payload"] == {"$ref": f"#/components/schemas/Payload_{name}"}
    assert schemas[f"Payload_{name}"]["properties"].keys() == {"order"}
    assert {each: schemas[each] for each in ("Job", "JobState")} == {
        each: before[each] for each in ("Job", "JobState")
    }


def test_names_of_job_types_that_differ_in_signs_alone_have_a_form_each() -> None:
    jobs = tuple(replace(TOPOLOGY.jobs[0], name=name) for name in ("a.b", "a_b", "a-b"))
    schemas = document_of(application(), replace(TOPOLOGY, jobs=jobs))["components"]["schemas"]
    forms = [schemas[each["$ref"].rpartition("/")[2]] for each in schemas["Submission"]["oneOf"]]
    assert [form["properties"]["type"]["const"] for form in forms] == ["a.b", "a_b", "a-b"]
