"""`topology apply` against a real broker: what it makes, what it leaves, and what it says."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from tests.support.planned import SMALL, bound, environment, exported, planned, policy, topology, user
from tests.support.processes import Processes, console_script
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.entities import compile_topology

SAMPLE_QUEUES = 5 * (1 + 1 + 12) + 1
ENTITIES = compile_topology(SMALL)
both_ways = pytest.mark.parametrize("management", [True, False], ids=["management", "amqp"])


def names(vhost: Vhost, kind: str) -> set[str]:
    return {each["name"] for each in exported(vhost)[kind]}


def effective(vhost: Vhost, queue: str) -> dict[str, Any]:
    """The policy in force, as the broker tells it; it comes with the queue's statistics, seconds late."""
    found = vhost.queue(queue) or {}
    return dict(found.get("effective_policy_definition") or {})


@contextmanager
def renamed_cluster(management_url: str) -> Iterator[str]:
    """The real management API, through a proxy that changes the cluster's name alone."""
    there = urlsplit(management_url)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {"Authorization": self.headers["Authorization"]}
            url = f"http://{there.hostname}:{there.port}{self.path}"
            passed = httpx.get(url, headers=headers, timeout=30)
            body = b'{"name": "another"}' if self.path == "/api/cluster-name" else passed.content
            self.send_response(passed.status_code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            user_info = there.netloc.rpartition("@")[0]
            yield f"http://{user_info}@127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@both_ways
def test_apply_declares_everything_and_a_second_time_changes_nothing(vhost: Vhost, management: bool) -> None:
    sample = {"REDRIVE_TOPOLOGY": "topology.catalogue:TOPOLOGY"}
    first = topology(vhost, "apply", management=management, **sample)
    declared = exported(vhost)
    second = topology(vhost, "apply", management=management, **sample)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert len(declared["queues"]) == SAMPLE_QUEUES
    assert exported(vhost) == declared


def test_ten_processes_may_apply_at_once(vhost: Vhost) -> None:
    started = [
        subprocess.Popen(
            console_script("topology.cli:main", "apply"),
            env=environment(vhost, of="TTL_30", management=True),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(10)
    ]
    ended = [(process.communicate(timeout=240)[0], process.returncode) for process in started]

    assert [code for _, code in ended] == [0] * 10, ended
    assert planned(vhost, of="TTL_30")["changes"] == []
    assert names(vhost, "queues") == {queue.name for queue in ENTITIES.queues}
    assert names(vhost, "exchanges") == {exchange.name for exchange in ENTITIES.exchanges}
    assert len(exported(vhost)["bindings"]) == len(ENTITIES.bindings)
    assert names(vhost, "policies") == {"redrive.jobs"}


@both_ways
def test_what_is_not_ours_stays_as_it_was_and_so_do_messages(vhost: Vhost, management: bool) -> None:
    assert topology(vhost, "apply").returncode == 0
    with vhost.channel() as channel:
        channel.queue_delete("jobs.dlq")
        channel.queue_declare("theirs", durable=True, arguments={"x-max-length": 7})
        channel.exchange_declare(
            "theirs", "topic", durable=True, arguments={"alternate-exchange": "jobs.dlx"}
        )
    bound(vhost, "theirs", "jobs", "#")
    bound(vhost, "jobs.dlx", "theirs", "jobs")
    policy(vhost, "theirs", pattern="^theirs", definition={"max-length": 5}, priority=99)
    policy(vhost, "redrive.theirs", pattern="^theirs", definition={"max-length": 6})
    for queue in ("theirs", "jobs", "redrive.unrouted.dlq"):
        vhost.publish(queue, b"kept")
    before, users = exported(vhost), rights(vhost)

    done = topology(vhost, "apply", management=management)

    assert done.returncode == 0, done.stderr
    after = exported(vhost)
    for kind in before:
        assert [each for each in before[kind] if each not in after[kind]] == [], kind
    added = {kind: [each for each in after[kind] if each not in before[kind]] for kind in after}
    assert [each["name"] for each in added.pop("queues")] == ["jobs.dlq"]
    assert [each["destination"] for each in added.pop("bindings")] == ["jobs.dlq"]
    assert not any(added.values()), added
    assert rights(vhost) == users
    depths = vhost.depths(["theirs", "jobs", "redrive.unrouted.dlq"])
    assert depths == {"theirs": 1, "jobs": 1, "redrive.unrouted.dlq": 1}


def rights(vhost: Vhost) -> Any:
    answer = vhost.management.get(f"/api/vhosts/{quote(vhost.vhost, safe='')}/permissions")
    return answer.raise_for_status().json()


def test_a_policy_of_ours_is_set_and_changed_without_touching_the_queue(vhost: Vhost) -> None:
    first = topology(vhost, "apply", of="TTL_30")
    queue = next(each for each in exported(vhost)["queues"] if each["name"] == "jobs")
    vhost.publish("jobs", b"kept")
    changes = planned(vhost, of="TTL_60")
    second = topology(vhost, "apply", of="TTL_60")

    assert (first.returncode, second.returncode, changes["exit_code"]) == (0, 0, 3), second.stderr
    (change,) = [each for each in changes["changes"] if each["kind"] == "set"]
    assert {"argument": "message-ttl", "have": 30_000, "want": 60_000} in change["differences"]
    assert planned(vhost, of="TTL_60")["exit_code"] == 0
    eventually(lambda: effective(vhost, "jobs").get("message-ttl") == 60_000, 15, "the TTL is in force")
    assert next(each for each in exported(vhost)["queues"] if each["name"] == "jobs") == queue
    assert vhost.depth("jobs") == 1


def test_a_consumer_timeout_is_left_out_aloud_where_the_broker_does_not_know_it(
    vhost: Vhost, broker_release: tuple[int, int]
) -> None:
    done = topology(vhost, "apply", of="TTL_60")

    assert done.returncode == 0, done.stderr
    (set_policy,) = exported(vhost)["policies"]
    if broker_release < (3, 12):
        assert set_policy["definition"] == {"message-ttl": 60_000}
        assert "left out policy redrive.jobs: RabbitMQ 3.10" in done.stdout
        assert "30 minutes" in done.stdout
        assert "consumer-timeout: none -> 3,600,000" in topology(vhost, "plan", of="TTL_60").stdout
    else:
        assert set_policy["definition"] == {"message-ttl": 60_000, "consumer-timeout": 3_600_000}
        assert "left out" not in done.stdout


def by_hand(said: str) -> list[list[str]]:
    return [shlex.split(line) for line in said.splitlines() if line.startswith("    rabbitmqctl")]


def run_by_hand(vhost: Vhost, words: list[str]) -> None:
    """What rabbitmqctl would do."""
    head, name, pattern, definition = words[2:-3], *words[-3:]
    options = dict(zip(head[::2], head[1::2], strict=True))
    assert options["-p"] == vhost.vhost
    body: dict[str, Any] = {"pattern": pattern, "definition": json.loads(definition)}
    body |= {"priority": int(options["--priority"]), "apply-to": options["--apply-to"]}
    policy(vhost, name, **body)


def test_without_the_management_api_all_else_is_declared_and_the_commands_are_told(vhost: Vhost) -> None:
    done = topology(vhost, "apply", of="TTL_60", management=False)

    assert done.returncode == 1
    assert "REDRIVE_MANAGEMENT_URL is not set" in done.stderr
    assert names(vhost, "queues") == {queue.name for queue in ENTITIES.queues}
    assert exported(vhost)["policies"] == []
    for words in by_hand(done.stderr):
        assert words[:2] == ["rabbitmqctl", "set_policy"]
        run_by_hand(vhost, words)
    assert planned(vhost, of="TTL_60")["exit_code"] == 0


def test_a_user_who_may_not_set_policies_is_told_the_commands(vhost: Vhost) -> None:
    with user(vhost, tags="monitoring") as limited:
        done = topology(limited, "apply", of="TTL_30")

    assert done.returncode == 1
    assert [words[1] for words in by_hand(done.stderr)] == ["set_policy"]
    assert names(vhost, "queues") == {queue.name for queue in ENTITIES.queues}


def test_a_queue_is_not_a_moment_without_its_ttl(vhost: Vhost) -> None:
    """The policy is there before the first queue, which this user may not declare."""
    with user(vhost, tags="policymaker", configure="^$") as limited:
        done = topology(limited, "apply", of="TTL_30")

    assert done.returncode == 1
    assert names(vhost, "policies") == {"redrive.jobs"}
    assert exported(vhost)["queues"] == []


@both_ways
def test_a_missing_right_is_named_with_the_command_that_gives_it(vhost: Vhost, management: bool) -> None:
    with user(vhost, tags="monitoring", configure="^redrive") as limited:
        done = topology(limited, "apply", management=management)

    assert done.returncode == 1
    assert "exchange jobs.dlx: ACCESS_REFUSED" in done.stderr
    assert f"rabbitmqctl set_permissions -p {vhost.vhost} user-" in done.stderr


@both_ways
def test_a_user_without_any_right_in_the_vhost_is_told_so(vhost: Vhost, management: bool) -> None:
    with user(vhost, tags="monitoring") as limited:
        name = limited.amqp_url.split("//")[1].split(":")[0]
        vhost.management.delete(f"/api/permissions/{vhost.vhost}/{name}").raise_for_status()
        done = topology(limited, "apply", management=management)

    assert done.returncode == 1
    assert vhost.vhost in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_vhost_and_a_wrong_password_end_it_at_once(vhost: Vhost) -> None:
    host = vhost.amqp_url.split("@")[1]
    wrong = topology(vhost, "apply", management=False, REDRIVE_AMQP_URL=f"amqp://nobody:x@{host}")
    parts = vhost.amqp_url.replace(vhost.vhost, "there-is-none")
    nowhere = topology(vhost, "apply", management=False, REDRIVE_AMQP_URL=parts)

    assert (wrong.returncode, nowhere.returncode) == (1, 1)
    assert "does not let user 'nobody' in" in wrong.stderr
    assert "rabbitmqctl add_vhost there-is-none" in nowhere.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"REDRIVE_AMQP_URL": "amqp://h//"}, "REDRIVE_AMQP_URL: "),
        ({"REDRIVE_TIME_SCALE": "2"}, "REDRIVE_TIME_SCALE: "),
        ({"REDRIVE_TOPOLOGY": "nowhere:TOPOLOGY"}, "REDRIVE_TOPOLOGY=nowhere:TOPOLOGY"),
        ({"REDRIVE_TOPOLOGY": "topology.names:UNROUTED"}, "is a str, no Topology"),
    ],
)
def test_a_wrong_setting_is_named_and_nothing_is_declared(
    vhost: Vhost, settings: dict[str, Any], words: str
) -> None:
    refused = topology(vhost, "apply", **settings)

    assert refused.returncode == 2
    assert words in refused.stderr
    assert exported(vhost)["queues"] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"REDRIVE_AMQP_URL": "amqp://127.0.0.1:1/x", "management": False},
        {"REDRIVE_MANAGEMENT_URL": "http://127.0.0.1:1"},
    ],
    ids=["amqp", "management"],
)
def test_a_broker_that_is_away_is_waited_for_and_then_given_up(
    vhost: Vhost, settings: dict[str, Any]
) -> None:
    away = topology(vhost, "apply", "--wait", "3", **settings)

    assert away.returncode == 1
    assert "waiting for the broker: " in away.stderr
    assert "127.0.0.1:1" in away.stderr
    assert exported(vhost)["queues"] == []


@pytest.mark.parametrize("away", ["REDRIVE_AMQP_URL", "REDRIVE_MANAGEMENT_URL"])
def test_what_comes_up_late_is_waited_for(
    vhost: Vhost, processes: Processes, proxy: Callable[..., TcpProxy], away: str
) -> None:
    settings = environment(vhost, of="SMALL", management=True)
    through = proxy(settings[away], refusing=True)
    process = processes.start(
        "apply", console_script("topology.cli:main", "apply"), settings | {away: through.url}
    )
    process.wait_for_log("waiting for the broker", 30)
    through.resume()

    assert process.wait(30) == 0, process.tail()
    assert names(vhost, "queues") == {queue.name for queue in ENTITIES.queues}


def test_help_says_what_policies_need() -> None:
    said = subprocess.run(
        console_script("topology.cli:main", "apply", "--help"), capture_output=True, text=True, check=True
    ).stdout
    assert "REDRIVE_MANAGEMENT_URL" in said
    assert "policymaker" in said


def test_two_urls_of_two_brokers_are_refused_before_anything_is_made(vhost: Vhost) -> None:
    """Another cluster's management API: everything is as on the broker, but the name."""
    before = exported(vhost)
    with renamed_cluster(vhost.management_url) as url:
        planned_there = topology(vhost, "plan", REDRIVE_MANAGEMENT_URL=url)
        done = topology(vhost, "apply", of="TTL_30", REDRIVE_MANAGEMENT_URL=url)
        verified = topology(vhost, "verify", REDRIVE_MANAGEMENT_URL=url)

    place = url.rpartition("@")[2]
    assert f"at http://{place} vhost {vhost.vhost}" in planned_there.stdout
    for refused in (done, verified):
        assert refused.returncode == 1
        assert "is cluster 'another': both must name one broker" in refused.stderr
    assert exported(vhost) == before


def test_an_amqp_port_where_nothing_listens_is_no_place_that_was_looked_at(vhost: Vhost) -> None:
    assert topology(vhost, "apply").returncode == 0
    nowhere = replace(vhost, amqp_url=f"amqp://guest:guest@127.0.0.1:1/{vhost.vhost}")
    plan, check = topology(nowhere, "plan"), topology(nowhere, "check")
    applied = topology(nowhere, "apply", "--wait", "0")
    verified = topology(nowhere, "verify")
    migrated = topology(nowhere, "migrate", "--yes", of="CLASSIC")

    assert "127.0.0.1:1 " not in plan.stdout + check.stdout
    assert [each.returncode for each in (plan, check, applied, verified, migrated)] == [0, 0, 1, 1, 1]
    for each in (applied, verified, migrated):
        assert f"127.0.0.1:1 vhost {vhost.vhost}" in each.stderr
