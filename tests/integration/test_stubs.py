"""The third party and the webhook sink, as processes."""

from __future__ import annotations

import hashlib
import hmac
import time

import httpx
import pytest

from dev.thirdparty.client import ThirdPartyClient
from tests.support.stubs import RunningSink

PAYMENT = {"payment_id": "p1", "amount_cents": 100}


def pay(party: ThirdPartyClient) -> int:
    """The status of its answer."""
    return httpx.post(f"{party.url}/payments", json=PAYMENT, trust_env=False, timeout=30).status_code


def test_it_fails_as_told_then_works(third_party: ThirdPartyClient) -> None:
    third_party.fail("/payments", {"status": 503}, {"status": 429, "retry_after": 1.5}, {"drop": True})
    with httpx.Client(base_url=third_party.url, trust_env=False, timeout=30) as client:
        assert client.post("/payments", json=PAYMENT).status_code == 503
        limited = client.post("/payments", json=PAYMENT)
        assert (limited.status_code, limited.headers["Retry-After"]) == (429, "1.5")
        with pytest.raises(httpx.RemoteProtocolError):
            client.post("/payments", json=PAYMENT)
        assert client.post("/payments", json=PAYMENT).status_code == 201
    assert [each["answered"] for each in third_party.requests("/payments")] == [503, 429, "dropped", 201]
    assert third_party.payments() == [PAYMENT]


def test_a_silence_outlasts_the_clients_patience(third_party: ThirdPartyClient) -> None:
    third_party.fail("/payments", {"timeout": 30})
    with httpx.Client(base_url=third_party.url, trust_env=False, timeout=30) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post("/payments", json=PAYMENT, timeout=0.2)
        assert client.post("/payments", json=PAYMENT).status_code == 201


def test_a_late_answer_is_a_good_one(third_party: ThirdPartyClient) -> None:
    third_party.fail("/inventory/*", {"delay": 0.3})
    began = time.monotonic()
    assert httpx.get(f"{third_party.url}/inventory/sku-1", trust_env=False, timeout=30).is_success
    assert time.monotonic() - began >= 0.3


def test_one_charge_per_key_even_when_its_answer_was_lost(third_party: ThirdPartyClient) -> None:
    third_party.fail("/charges", {"drop": True, "effect": True})
    with httpx.Client(
        base_url=third_party.url, trust_env=False, timeout=30, headers={"Idempotency-Key": "order-1"}
    ) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.post("/charges", json={"amount": 1})
        again = client.post("/charges", json={"amount": 1})
        assert (again.status_code, again.json()["id"]) == (200, "charge-1")
        assert client.post("/charges", json={"amount": 2}).status_code == 422
    assert [charge["key"] for charge in third_party.charges()] == ["order-1"]


def test_files_are_kept(third_party: ThirdPartyClient) -> None:
    with httpx.Client(base_url=third_party.url, trust_env=False, timeout=30) as client:
        assert client.head("/files/r.txt").status_code == 404
        assert client.put("/files/r.txt", content=b"four").status_code == 201
        assert client.head("/files/r.txt").status_code == 200
        assert client.get("/files/r.txt").content == b"four"
    assert third_party.files() == {"r.txt": 4}


def test_a_rule_that_makes_no_sense_is_refused_and_healing_ends_the_others(
    third_party: ThirdPartyClient,
) -> None:
    with pytest.raises(httpx.HTTPStatusError, match="422"):
        third_party.fail("/payments", {"stauts": 503})
    third_party.fail("/payments", {"status": 400}, then="repeat")
    third_party.heal()
    assert pay(third_party) == 201
    third_party.fail("/payments", {"status": 400}, then="repeat")
    third_party.reset()
    assert (third_party.requests(), third_party.payments()) == ([], [])
    assert pay(third_party) == 201


@pytest.mark.parametrize("body", [b"", b"no json", b"{'path': '/payments'}", b"\xff\xfe", b"[1]"])
def test_a_rule_that_is_no_json_is_refused_with_the_reason(
    third_party: ThirdPartyClient, body: bytes
) -> None:
    answer = httpx.put(f"{third_party.url}/_control/rules", content=body, trust_env=False, timeout=30)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["msg"]
    assert third_party.requests("/payments") == []


def test_any_status_that_a_step_may_have_is_answered(third_party: ThirdPartyClient) -> None:
    third_party.fail("/payments", {"status": 520}, {"status": 299})
    statuses = [pay(third_party) for _ in range(2)]
    assert statuses == [520, 299]


def signature(sink: RunningSink, body: bytes) -> str:
    at = int(time.time())
    digest = hmac.new(sink.secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def test_the_sink_takes_what_is_signed_and_keeps_the_rest_apart(sink: RunningSink) -> None:
    body = b'{"id":"a1"}'
    good = {"Redrive-Signature": signature(sink, body), "Redrive-Delivery": "a1"}
    with httpx.Client(trust_env=False, timeout=30) as client:
        assert client.post(sink.url, content=body, headers=good).status_code == 204
        assert client.post(sink.url, content=body + b" ", headers=good).status_code == 401
        assert client.post(sink.url, content=body).status_code == 401
    assert [each["delivery"] for each in sink.client.received()] == ["a1"]
    assert len(sink.client.refused()) == 2


def test_the_sink_fails_as_often_as_it_is_told(sink: RunningSink) -> None:
    def deliver(body: bytes) -> int:
        headers = {"Redrive-Signature": signature(sink, body)}
        return httpx.post(sink.url, content=body, headers=headers, trust_env=False, timeout=30).status_code

    sink.client.fail(500, 503)
    assert [deliver(b"{}") for _ in range(3)] == [500, 503, 204]
    assert [each["answered"] for each in sink.client.failed()] == [500, 503]
    assert len(sink.client.received()) == 1
    with pytest.raises(httpx.HTTPStatusError, match="422"):
        sink.client.fail(200)
