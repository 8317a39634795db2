"""No secret that a process is given is in a log, an answer or the OpenAPI document, whatever goes wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit
from uuid import uuid4

import click
import httpx
import pytest

from api.keys_cli import main as api_keys
from dlq_consumer.cli import main as dlq
from storage.cli import main as storage
from tests.support.databases import Database, execute_as_admin
from tests.support.dlq_here import command_here
from tests.support.processes import Process
from tests.support.stack import Stack
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.cli import main as topology

CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
RIGHTS = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass
class Canaries:
    """A value of each secret that occurs nowhere else, and all that was said."""

    values: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.values.setdefault(name, f"canary{name}{uuid4().hex}")

    def hear(self, what: str, text: str) -> None:
        self.said[what] = self.said.get(what, "") + text

    def check(self) -> None:
        told = {
            (name, what)
            for name, value in self.values.items()
            for what, text in self.said.items()
            if value in text or quote(value) in text
        }
        assert not told, told


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
def user(vhost: Vhost, canaries: Canaries) -> Iterator[str]:
    """Of the broker, with a password that is a canary."""
    name = f"canary-user-{uuid4().hex[:6]}"
    give_password(vhost, name, canaries["Amqp"])
    vhost.management.put(f"/api/permissions/{vhost.vhost}/{name}", json=RIGHTS).raise_for_status()
    yield name
    vhost.management.delete(f"/api/users/{name}")


def give_password(vhost: Vhost, name: str, password: str) -> None:
    body = {"password": password, "tags": "administrator"}
    vhost.management.put(f"/api/users/{name}", json=body).raise_for_status()


def cut_connections(vhost: Vhost) -> None:
    """Those that the management API knows of by now: it takes some seconds to hear of one."""
    for connection in vhost.management.get("/api/connections").json():
        if connection.get("vhost") == vhost.vhost:
            vhost.management.delete(f"/api/connections/{quote(connection['name'], safe='')}")


@pytest.fixture
def role(database: Database, canaries: Canaries) -> Iterator[str]:
    """Of the database, the same."""
    name = f"canary_{database.name}"
    execute_as_admin(database, f"create role \"{name}\" superuser login password '{canaries['Database']}'")
    yield name
    execute_as_admin(database, f'alter role "{name}" nologin')
    database.cut_connections()
    execute_as_admin(database, f'drop role "{name}"')


@pytest.fixture
def secretive(stack: Stack, user: str, role: str, canaries: Canaries) -> Stack:
    """A stack each of whose secrets is a canary; whom it is to tell cannot be reached."""

    def of(url: str) -> str:
        parts = urlsplit(url)
        return parts._replace(netloc=f"{user}:{canaries['Amqp']}@{parts.hostname}:{parts.port}").geturl()

    stack.settings |= {
        "REDRIVE_AMQP_URL": of(stack.vhost.amqp_url),
        "REDRIVE_MANAGEMENT_URL": of(stack.vhost.management_url),
        "REDRIVE_DATABASE_URL": stack.database.url_of(role, canaries["Database"]),
        "REDRIVE_ALERT_WEBHOOK_URL": f"http://127.0.0.1:1/hook?token={canaries['WebhookUrl']}",
        "REDRIVE_ALERT_WEBHOOK_SECRET": canaries["WebhookSecret"],
        "REDRIVE_ALERT_ALLOW": "127.0.0.1",
        "REDRIVE_ALERT_APPRISE_URLS": f"json://u:{canaries['Apprise']}@127.0.0.1:1/",
        "REDRIVE_SENTRY_DSN": f"http://{canaries['Sentry']}@127.0.0.1:1/7",
        "REDRIVE_CALLBACK_SECRET": canaries["CallbackSecret"],
        "REDRIVE_CALLBACK_ALLOW": "127.0.0.1",
    }
    return stack


def says(process: Process, pattern: str) -> Callable[[], bool]:
    return lambda: re.search(pattern, process.log, re.IGNORECASE) is not None


def test_secrets_are_told_to_nobody_whatever_goes_wrong(secretive: Stack, canaries: Canaries) -> None:
    stack = secretive
    stack.apply_topology()
    api = stack.start_api(REDRIVE_API_DOCS="true")
    key = stack.http.headers["Authorization"].removeprefix("Bearer ")
    canaries.values["Key"] = key.rpartition("_")[2]
    processes = (api, stack.start_worker(), stack.start_consumer())

    def ask(method: str, path: str, **request: object) -> httpx.Response:
        answer = stack.http.request(method, path, **request)  # type: ignore[arg-type]
        canaries.hear(f"{method} {path.partition('?')[0]}", f"{answer.headers}\n{answer.text}")
        return answer

    # What is found wrong, and what nobody tells of a key that is not known.
    wrong = canaries["UnknownKey"]
    assert ask("GET", "/jobs", headers={"Authorization": f"Bearer rdk_{wrong}"}).status_code == 401
    assert ask("GET", "/jobs", headers={"Authorization": f"Basic {wrong}"}).status_code == 401
    assert ask("POST", "/jobs", json={"type": "none", "payload": 5}).status_code == 400
    body = {"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k", "delay_s": 60}
    hook = f"http://127.0.0.1:1/called?token={canaries['CallbackUrl']}"
    made = ask("POST", "/jobs", json=body | {"callback_url": hook})
    assert made.status_code == 202, made.text
    job = made.json()["id"]
    assert (
        ask("POST", "/jobs", json=body | {"idempotency_key": "l", "callback_url": f"ftp{hook}"}).status_code
        == 422
    )
    assert ask("POST", f"/jobs/{job}/cancel", json={"note": "n"}).status_code == 200

    # A letter alerts through each channel, the cancelled job calls back: nobody is there to hear of it.
    stack.publish("payments", b"{")
    tried = "select count(*) from redrive.alert_deliveries where last_error is not null"
    eventually(lambda: stack.database.value(tried) == 3, 60, "each channel was tried")
    called = "select count(*) from redrive.callbacks where tries > 0"
    eventually(lambda: stack.database.value(called) == 1, 60, "the callback was tried")
    for path in (
        *("/openapi.json", "/docs", "/metrics", "/readyz", "/queues", "/topology", "/job-types", "/jobs"),
        *("/alerts", "/audit", "/callbacks", f"/jobs/{job}", "/dead-letters", "/nope?token=" + wrong),
    ):
        ask("GET", path)
    stack.database.execute("alter table redrive.audit add constraint broken check (false) not valid")
    assert ask("POST", "/replays", json={"letter_ids": [1]}).status_code == 500
    stack.database.execute("alter table redrive.audit drop constraint broken")
    for said in (("list",), ("alerts",), ("audit",), ("check", "--running"), ("alerts", "test")):
        heard(canaries, stack, dlq, *said)

    # The broker refuses them, then the database does.
    give_password(stack.vhost, urlsplit(stack.settings["REDRIVE_AMQP_URL"]).username or "", "another")

    def refused() -> bool:
        cut_connections(stack.vhost)
        return all(says(each, "refused|not authori[sz]ed|403|401")() for each in processes)

    eventually(refused, 60, "the broker refuses them all")
    ask("GET", "/readyz")
    heard(canaries, stack, topology, "plan")
    heard(canaries, stack, dlq, "check")
    execute_as_admin(
        stack.database, f'alter role "{urlsplit(stack.settings["REDRIVE_DATABASE_URL"]).username}" nologin'
    )
    stack.database.cut_connections()
    for process in processes[1:]:
        eventually(says(process, "not permitted to log in|is away"), 60, f"{process.name} has no database")
    eventually(lambda: ask("GET", "/jobs").status_code == 503, 30, "the API has no database")
    for path in ("/readyz", "/metrics"):
        ask("GET", path)
    assert heard(canaries, stack, dlq, "list") != 0
    assert heard(canaries, stack, storage, "check") != 0
    assert heard(canaries, stack, api_keys, "list") != 0
    for process in processes:
        canaries.hear(process.name, process.log)
    canaries.check()


def heard(canaries: Canaries, stack: Stack, command: click.Command, *arguments: str) -> int:
    """What the command says; its exit code."""
    done = command_here(command, stack.settings, stack.processes.directory, *arguments)
    canaries.hear(f"{command.callback!r} {arguments}", f"{done.output}{done.exception!r}")
    return done.exit_code


def test_wrong_settings_are_refused_without_their_values(stack: Stack, canaries: Canaries) -> None:
    secret = canaries["Wrong"]
    wrong = {
        "REDRIVE_DATABASE_URL": f"mysql://u:{secret}@h/x",
        "REDRIVE_AMQP_URL": f"amqp://u:{secret}@h//",
        "REDRIVE_MANAGEMENT_URL": f"u:{secret}@h",
        "REDRIVE_ALERT_WEBHOOK_URL": f"ftp://h/{secret}",
        "REDRIVE_ALERT_APPRISE_URLS": f"nothing-known://{secret}",
        "REDRIVE_SENTRY_DSN": f"h/{secret}",
        "REDRIVE_CALLBACK_SECRET": f"{secret} {secret} {secret}",
    }
    stack.settings |= wrong
    assert heard(canaries, stack, dlq, "consume") != 0
    assert heard(canaries, stack, topology, "plan") != 0
    assert heard(canaries, stack, storage, "check") != 0
    assert heard(canaries, stack, api_keys, "list") != 0
    for entry, *arguments in (
        ("uvicorn.main:main", "api.app:app"),
        ("celery.__main__:main", "-A", "workers.app", "worker"),
    ):
        done = stack.command(entry, *arguments)
        assert done.returncode != 0, entry
        canaries.hear(entry, done.stdout + done.stderr)
    for what, text in canaries.said.items():
        assert "REDRIVE_" in text, (what, text)
    canaries.check()
