"""What a submission must look like, and which field is named when it does not."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from api.problems import Problem
from api.submission import read_submission
from topology.catalogue import TOPOLOGY
from topology.spec import JobType, Topology, WorkQueue

GOOD: dict[str, Any] = {
    "type": "payments.charge_order",
    "payload": {"order_id": "o", "amount_cents": 5, "currency": "EUR"},
}


def refused(body: Any, *headers: str, topology: Topology = TOPOLOGY) -> tuple[int, list[str]]:
    with pytest.raises(Problem) as caught:
        read_submission(topology, body, headers)
    return caught.value.status, [error.field for error in caught.value.errors]


def with_payload(**changed: Any) -> dict[str, Any]:
    return {"type": GOOD["type"], "payload": {**GOOD["payload"], **changed}}


def test_header_and_body_carry_the_same_key() -> None:
    by_header = read_submission(TOPOLOGY, GOOD, ["k 1"])
    by_body = read_submission(TOPOLOGY, {**GOOD, "idempotency_key": "k 1"}, [])
    both = read_submission(TOPOLOGY, {**GOOD, "idempotency_key": "k 1"}, ['"k 1"', "k 1"])
    assert by_header == by_body == both
    assert both.key == "k 1"


@pytest.mark.parametrize(
    ("headers", "in_body", "field"),
    [
        ([], {}, "Idempotency-Key"),
        ([""], {}, "Idempotency-Key"),
        (['""'], {}, "Idempotency-Key"),
        (["k" * 256], {}, "Idempotency-Key"),
        (["k\x00"], {}, "Idempotency-Key"),
        (["kä"], {}, "Idempotency-Key"),
        ([], {"idempotency_key": ""}, "idempotency_key"),
        ([], {"idempotency_key": " k"}, "idempotency_key"),
        ([], {"idempotency_key": "a\x00b"}, "idempotency_key"),
        ([], {"idempotency_key": "\ud800"}, "idempotency_key"),
        ([], {"idempotency_key": "a\n"}, "idempotency_key"),
        ([], {"idempotency_key": None}, "idempotency_key"),
        ([], {"idempotency_key": 5}, "idempotency_key"),
        (["a"], {"idempotency_key": "b"}, "idempotency_key"),
        (["a", "b"], {}, "Idempotency-Key"),
    ],
)
def test_a_bad_key_is_400(headers: list[str], in_body: dict[str, Any], field: str) -> None:
    assert refused({**GOOD, **in_body}, *headers) == (400, [field])


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["type", "payload"]),
        ({"type": 5, "payload": []}, ["type", "payload"]),
        ({**GOOD, "type": "payments.unknown"}, ["type"]),
        ({**GOOD, "queue": "payments"}, ["queue"]),
        (with_payload(amount_cents="5"), ["payload.amount_cents"]),
        (with_payload(amount_cents=True), ["payload.amount_cents"]),
        (with_payload(amount_cents=5.5), ["payload.amount_cents"]),
        (with_payload(amount_cents=0, currency="euro"), ["payload.amount_cents", "payload.currency"]),
        (with_payload(extra=1), ["payload.extra"]),
        (with_payload(order_id="\ud800"), ["payload.order_id"]),
        (with_payload(order_id="a\x00"), ["payload.order_id"]),
        (
            {"type": GOOD["type"], "payload": {}},
            ["payload.order_id", "payload.amount_cents", "payload.currency"],
        ),
    ],
)
def test_a_bad_field_is_422_and_named(body: dict[str, Any], fields: list[str]) -> None:
    assert refused(body, "k") == (422, fields)


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_that_is_no_object_is_422(body: Any) -> None:
    assert refused(body, "k") == (422, ["body"])


def test_an_unknown_type_is_told_the_known_ones() -> None:
    with pytest.raises(Problem, match=r"known are: .*payments\.charge_order"):
        read_submission(TOPOLOGY, {**GOOD, "type": "nope"}, ["k"])


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"text": "a\x00"}, "payload.data.text"),
        ({"a": [{"b": 1}, ["\udc00"]]}, "payload.data.a.1.0"),
        ({"a": {"\ud800": 1}}, "payload.data.a."),
        ({"text": "\U0001f600", "last": "\x00"}, "payload.data.last"),
    ],
)
def test_half_a_pair_of_surrogates_and_nul_are_named_also_where_the_model_takes_anything(
    data: dict[str, object], field: str
) -> None:
    payload = {"event_id": "e", "kind": "k", "data": data}
    with pytest.raises(Problem) as refused:
        read_submission(TOPOLOGY, {"type": "webhooks.handle_webhook", "payload": payload}, ["k"])
    assert refused.value.status == 422
    assert [error.field.startswith(field) for error in refused.value.errors] == [True]


def test_characters_beyond_the_first_plane_and_the_spelling_of_an_escape_pass() -> None:
    payload = {"event_id": "e", "kind": "k", "data": {"\U0001f600": "\U0001f600 \\u0000 \\ud800"}}
    found = read_submission(TOPOLOGY, {"type": "webhooks.handle_webhook", "payload": payload}, ["k"])
    assert found.payload == payload


def test_defaults_are_filled_in_but_the_request_stays_as_it_was_sent() -> None:
    body = {"type": "reports.generate_report", "payload": {"report_id": "r"}}
    spelled = {"type": "reports.generate_report", "payload": {"report_id": "r", "sections": 3}}
    found = read_submission(TOPOLOGY, body, ["k"])
    assert found.payload == {"report_id": "r", "sections": 3}
    assert found.request != read_submission(TOPOLOGY, spelled, ["k"]).request


def test_an_older_release_s_keys_know_the_same_request() -> None:
    """Keys live on over an upgrade: with another digest a repeated request would be refused."""
    text = '["webhooks.handle_webhook",{"data":{"b":"\\u00e9"},"event_id":"e","kind":"k"}'
    payload = {"event_id": "e", "kind": "k", "data": {"b": "é"}}
    body = {"type": "webhooks.handle_webhook", "payload": payload}
    for options, told in (({}, "]"), ({"priority": 3, "delay_s": 1.5}, ',{"delay_s":1.5,"priority":3}]')):
        found = read_submission(TOPOLOGY, body | options, ["k"])
        assert found.request == hashlib.sha256((text + told).encode()).digest()


def test_the_order_of_keys_makes_no_other_request() -> None:
    turned = {"payload": dict(reversed(list(GOOD["payload"].items()))), "type": GOOD["type"]}
    assert read_submission(TOPOLOGY, turned, ["k"]) == read_submission(TOPOLOGY, GOOD, ["k"])


class Appointment(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime
    note: str = "none"


def test_a_strict_model_takes_a_datetime_as_json_spells_it() -> None:
    topology = Topology((WorkQueue("q"),), (JobType("q.meet", "q", Appointment),))
    body = {"type": "q.meet", "payload": {"at": "2025-01-01T00:00:00Z"}}
    found = read_submission(topology, body, ["k"])
    assert found.payload == {"at": "2025-01-01T00:00:00Z", "note": "none"}
    assert refused({"type": "q.meet", "payload": {"at": "soon"}}, "k", topology=topology) == (
        422,
        ["payload.at"],
    )
