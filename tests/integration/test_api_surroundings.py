"""Keys, settings, queues, health and metrics of a real API process."""

from __future__ import annotations

import json
import sys

import httpx
import pytest

from api.keys import new_key
from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.unit.test_api_doors import DOCS, OPEN, application, routes

CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}


def test_keys_open_what_their_scopes_say_until_they_are_revoked(stack: Stack) -> None:
    stack.start_api()
    reader = json.loads(
        stack.command("api.keys_cli:main", "create", "ops", "--scope", "read", "--json").stdout
    )
    assert reader["scopes"] == ["read"]
    headers = {"Authorization": f"Bearer {reader['key']}"}
    body = {"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k"}
    with httpx.Client(base_url=stack.http.base_url, headers=headers, timeout=30) as client:
        assert client.get("/job-types").status_code == 200
        refused = client.post("/jobs", json=body)
        assert refused.status_code == 403
        assert 'scope="submit"' in refused.headers["www-authenticate"]
        assert stack.command("api.keys_cli:main", "revoke", "ops").returncode == 0
        eventually(lambda: client.get("/job-types").status_code == 401, 10, "the revoked key is refused")
        assert client.get("/job-types", headers={"Authorization": "Bearer rdk_unknown"}).status_code == 401


# Each of the scopes that are named opens it.
SCOPES = {
    ("POST", "/jobs"): "submit",
    ("POST", "/jobs/batch"): "submit",
    ("GET", "/jobs"): "read",
    ("GET", "/jobs/{job_id}"): "read",
    ("GET", "/jobs/{job_id}/events"): "read",
    ("GET", "/jobs/{job_id}/result"): "read",
    ("POST", "/jobs/{job_id}/cancel"): "submit operate",
    ("POST", "/jobs/{job_id}/retry"): "operate",
    ("GET", "/job-types"): "read",
    ("GET", "/queues"): "read",
    ("GET", "/queues/{name}"): "read",
    ("GET", "/topology"): "read",
    ("GET", "/dead-letters"): "read",
    ("GET", "/dead-letters/stats"): "read",
    ("GET", "/dead-letters/export"): "read",
    ("POST", "/dead-letters/discard"): "operate",
    ("POST", "/dead-letters/restore"): "operate",
    ("POST", "/dead-letters/{letter_id}/discard"): "operate",
    ("POST", "/dead-letters/{letter_id}/restore"): "operate",
    ("POST", "/dead-letters/{letter_id}/edit"): "operate",
    ("POST", "/dead-letters/{letter_id}/withdraw"): "operate",
    ("GET", "/stream"): "read",
    ("GET", "/callbacks"): "read",
    ("GET", "/callbacks/{callback_id}"): "read",
    ("POST", "/callbacks/{callback_id}/retry"): "operate",
    ("GET", "/alerts"): "read",
    ("GET", "/alerts/{alert_id}"): "read",
    ("POST", "/alerts/snooze"): "operate",
    ("POST", "/alerts/unsnooze"): "operate",
    ("POST", "/alerts/test"): "operate",
    ("GET", "/groups"): "read",
    ("GET", "/groups/{fingerprint}"): "read",
    ("POST", "/groups/{fingerprint}/notes"): "operate",
    ("POST", "/groups/{fingerprint}/resolve"): "operate",
    ("POST", "/groups/{fingerprint}/ignore"): "operate",
    ("POST", "/groups/{fingerprint}/reopen"): "operate",
    ("GET", "/dead-letters/{letter_id}"): "read",
    ("POST", "/replays"): "operate",
    ("GET", "/replays"): "read",
    ("GET", "/replays/{replay_id}"): "read",
    ("POST", "/replays/{replay_id}/pause"): "operate",
    ("POST", "/replays/{replay_id}/resume"): "operate",
    ("POST", "/replays/{replay_id}/cancel"): "operate",
    ("GET", "/audit"): "operate",
    ("GET", "/metrics"): "read",
}


def refused_keys(stack: Stack) -> dict[str, dict[str, str]]:
    """Headers of requests that no route may let in, by what is wrong with their key."""
    made = {
        name: stack.command("api.keys_cli:main", *command).stdout.strip()
        for name, command in {
            "revoked": ("create", "gone"),
            "expired": ("create", "old", "--expires", "0.001s"),
            "rotated": ("create", "turned"),
        }.items()
    }
    assert stack.command("api.keys_cli:main", "revoke", "gone").returncode == 0
    assert stack.command("api.keys_cli:main", "rotate", "turned", "--overlap", "0s").returncode == 0
    made |= {"unknown": new_key(), "half": made["rotated"][:-1], "empty": "rdk_", "long": "k" * 5_000}
    return {"none": {}} | {kind: {"Authorization": f"Bearer {key}"} for kind, key in made.items()}


def test_each_route_opens_to_its_scope_and_to_no_other(stack: Stack) -> None:
    found = {route for route in routes(application()) if route[1] not in OPEN | DOCS}
    assert found == SCOPES.keys()
    stack.start_api(REDRIVE_API_UNKNOWN_KEYS_PER_MIN="100000")
    url, opened = stack.http.base_url, set()
    for kind, headers in refused_keys(stack).items():
        with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
            for method, path in SCOPES:
                answer = client.request(method, path.replace("{", "").replace("}", ""))
                challenge = answer.headers["www-authenticate"]
                assert (kind, path, answer.status_code) == (kind, path, 401)
                assert answer.headers["content-type"] == "application/problem+json"
                assert ("invalid_token" in challenge) is (kind != "none"), challenge
    for scope in ("submit", "read", "operate"):
        key = stack.command("api.keys_cli:main", "create", f"only-{scope}", "--scope", scope).stdout.strip()
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
            for method, path in SCOPES:
                # Of an answer without an end the head is enough.
                with client.stream(method, path.replace("{", "").replace("}", "")) as answer:
                    pass
                assert answer.status_code != 401
                if answer.status_code != 403:
                    opened.add((method, path, scope))
    assert opened == {(*route, scope) for route, scopes in SCOPES.items() for scope in scopes.split()}


def test_keys_are_listed_without_the_key_and_a_name_is_given_once(stack: Stack) -> None:
    made = stack.command("api.keys_cli:main", "create", "shop")
    key = made.stdout.strip()
    assert key.startswith("rdk_")
    assert stack.command("api.keys_cli:main", "create", "shop").returncode == 4
    assert stack.command("api.keys_cli:main", "create", "a b").returncode == 2
    for never in ("0", "0s", "0d"):  # and not: for ever
        refused = stack.command("api.keys_cli:main", "create", "late", "--expires", never)
        assert (refused.returncode, refused.stdout) == (2, "")
    no_number = stack.command("api.keys_cli:main", "limit", "shop", "--rate", "nan")
    assert (no_number.returncode, "nan is no number" in no_number.stderr) == (2, True)
    assert stack.command("api.keys_cli:main", "revoke", "nobody").returncode == 1
    listed = stack.command("api.keys_cli:main", "list", "--json").stdout
    assert [json.loads(line)["scopes"] for line in listed.splitlines()] == [["submit", "read", "operate"]]
    assert key not in listed
    assert key.encode() not in stack.database.value("select key_hash from redrive.api_keys")


def test_queues_job_types_health_and_metrics_show_what_is_there(stack: Stack) -> None:
    stack.apply_topology()
    stack.start_api(REDRIVE_API_DOCS="true")
    for number in range(3):
        stack.submit("payments.charge_order", CHARGE, f"k{number}")
    stack.publish("payments.dlq", b"x")

    def counted() -> bool:
        answer = stack.http.get("/queues").raise_for_status().json()
        assert answer["broker"] == "ok"
        shown = {queue["name"]: queue for queue in answer["queues"]}
        assert set(shown) == {"payments", "inventory", "reports", "webhooks", "emails"}
        payments = shown["payments"]
        assert (payments["depth"], payments["dlq_depth"], payments["jobs"]) == (3, 1, {"QUEUED": 3})
        assert (payments["retrying"], payments["stuck"], payments["outbox"]["messages"]) == (0, 0, 0)
        return True

    eventually(counted, 15, "the management API counts the messages")
    types = {job["name"]: job for job in stack.http.get("/job-types").json()["job_types"]}
    assert types["payments.charge_order"]["payload"]["required"] == ["order_id", "amount_cents", "currency"]

    def ready() -> bool:
        answer = httpx.get(f"{stack.http.base_url}/readyz", timeout=30)
        assert answer.status_code == 200
        assert answer.json() == {
            "status": "ready",
            "database": "ok",
            "outbox": {"messages": 0, "limit": 1_000_000, "full": False},
            "broker": "ok",
            "paused_queues": [],
            "stuck_letters": 0,
            "degraded": [],
        }
        return True

    eventually(ready, 20, "it is ready")
    assert httpx.get(f"{stack.http.base_url}/healthz", timeout=30).json() == {"status": "alive"}
    metrics = stack.http.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'redrive_jobs{queue="payments",state="QUEUED"} 3' in metrics.text.splitlines()
    assert stack.http.get("/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDRIVE_DATABASE_URL", ""),
        ("REDRIVE_DATABASE_URL", "mysql://x/y"),
        ("REDRIVE_AMQP_URL", "amqp://h//"),
        ("REDRIVE_MANAGEMENT_URL", "none"),
        ("REDRIVE_API_BODY_LIMIT", "many"),
        ("REDRIVE_TOPOLOGY", "no.such:THING"),
    ],
)
def test_a_wrong_setting_is_refused_at_start_and_named(processes: Processes, name: str, value: str) -> None:
    settings = {
        "REDRIVE_DATABASE_URL": "postgresql://u:secret@127.0.0.1:1/x",
        "REDRIVE_AMQP_URL": "amqp://127.0.0.1:1/",
        "REDRIVE_MANAGEMENT_URL": "http://127.0.0.1:1",
    } | {name: value}
    process = processes.start(
        "api", [sys.executable, "-m", "uvicorn", "api.app:app", "--port", "0"], settings
    )
    assert process.wait() == 2
    assert f"{name}" in process.log
    assert "Traceback" not in process.log
    assert "secret" not in process.log


def test_a_missing_setting_is_named(processes: Processes) -> None:
    process = processes.start("api", [sys.executable, "-m", "uvicorn", "api.app:app", "--port", "0"], {})
    assert process.wait() == 2
    for name in ("REDRIVE_DATABASE_URL", "REDRIVE_AMQP_URL"):
        assert f"{name}: not set, in the environment or in .env: " in process.log


def test_an_unmigrated_database_is_waited_for_and_the_command_is_told(
    empty_database: Database, stack: Stack, processes: Processes
) -> None:
    process = processes.start_module(
        "api",
        "uvicorn",
        "api.app:app",
        "--port",
        "0",
        env=stack.settings | {"REDRIVE_DATABASE_URL": empty_database.url},
    )
    process.wait_for_log("Run: storage migrate")
    process.terminate()
    assert "Application shutdown complete" in process.log


def test_an_outbox_without_its_database_says_so_and_when_it_is_back(stack: Stack) -> None:
    stack.apply_topology()
    with TcpProxy(stack.database.url) as database:
        api = stack.start_api(REDRIVE_DATABASE_URL=database.url, REDRIVE_API_DATABASE_TIMEOUT_S="1")
        database.refuse()
        api.wait_for_log("waiting for the outbox's database", 15)
        database.resume()
        api.wait_for_log("connected to the outbox's database", 15)
