"""`topology verify` beside a real worker and a real dead-letter consumer; and broken, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.shared import Places, Shared
from tests.support.verifying import Verifying
from tests.support.vhosts import Vhost
from tests.support.worker_jobs import QUEUE
from topology.ladder import end_key
from topology.names import UNROUTED, UNROUTED_DLQ

FAST = ["100ms", "200ms", "400ms", "800ms", "1600ms", "3200ms"]
SLOW = ["6400ms", "12800ms", "25600ms", "51200ms"]
LETTERS = {
    "work → work.dlx → work.dlq",
    "work.dlx → work.dlq",
    "work.due → work",
    f"work.dlx → {UNROUTED} → {UNROUTED_DLQ}",
    f"work.due → {UNROUTED} → {UNROUTED_DLQ}",
}


def ladder_key(bit: str) -> str:
    """The binding of step 400ms for this value of its bit."""
    return ".".join([QUEUE.ladder.shape, *["*"] * 7, bit, *["*"] * 2, "#"])


def steps(delays: list[str]) -> set[str]:
    return {f"work.retry.{delay} → work.due" for delay in delays}


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Verifying]]:
    def make(vhost: Vhost, database: Database, processes: Processes) -> Verifying:
        made = Verifying(vhost, database, processes)
        made.start_both()
        return made

    with places.shared(make) as shared:
        yield shared


@pytest.fixture
def live(shared: Shared[Verifying], request: pytest.FixtureRequest) -> Iterator[Verifying]:
    with shared.lent(request.node) as live:
        yield live


def test_all_is_ok_and_no_message_and_no_row_stays(live: Verifying) -> None:
    rows = live.rows()

    checks = live.checks()

    assert {path for path, check in checks.items() if check["status"] == "not_probed"} == steps(SLOW)
    assert {path for path, check in checks.items() if check["seconds"] is not None} == LETTERS | steps(FAST)
    assert [check for check in checks.values() if check["status"] == "failed"] == []
    assert all("--wait" in checks[path]["reason"] for path in steps(SLOW))
    assert live.messages() == {}
    assert live.rows() == rows
    worker = live.processes.started[0]
    assert worker.log.count("action=probe_rejected") == 2
    assert "ERROR" not in worker.log


def test_the_text_says_each_path_and_counts_and_strict_wants_all_probed(live: Verifying) -> None:
    done, strict = live.verify(), live.verify("--strict")

    lines = done.stdout.splitlines()
    assert any(line.startswith("work → work.dlx → work.dlq: OK (") for line in lines), done.stdout
    slow = "work.retry.51200ms → work.due: NOT PROBED: its delay of 10.24 s is over --wait 0.7"
    assert slow in lines
    assert lines[-1] == "verified: 15 OK, 0 failed, 4 not probed"
    assert (done.returncode, strict.returncode) == (0, 1)


def without_dlx_binding(live: Verifying) -> dict[str, str]:
    live.unbind("work.dlx", "work.dlq", "work")
    binding = "work.dlx → work.dlq (binding 'work')"
    why = f"came out in redrive.unrouted.dlq: {binding}: it is missing. Run: topology apply"
    return {
        binding: "it is missing. Run: topology apply",
        "work → work.dlx → work.dlq": why,
        "work.dlx → work.dlq": why,
        "work.due → work": why,
    }


def without_dlx(live: Verifying) -> dict[str, str]:
    live.delete("exchanges", "work.dlx")
    why = "no probe sent: exchange work.dlx: it is missing. Run: topology apply"
    paths = {
        "work → work.dlx → work.dlq", "work.dlx → work.dlq", "work.due → work",
        f"work.dlx → {UNROUTED} → {UNROUTED_DLQ}",
    }  # fmt: skip
    return {"exchange work.dlx": "it is missing. Run: topology apply"} | dict.fromkeys(paths, why)


def without_dlq(live: Verifying) -> dict[str, str]:
    live.delete("queues", "work.dlq")
    why = "no probe sent: queue work.dlq: it is missing. Run: topology apply"
    paths = {"work → work.dlx → work.dlq", "work.dlx → work.dlq", "work.due → work"}
    return {"queue work.dlq": "it is missing. Run: topology apply"} | dict.fromkeys(paths, why)


def without_step_binding(live: Verifying) -> dict[str, str]:
    key = ladder_key("1")
    live.unbind("work.retry.400ms", "work.retry.400ms", key)
    why = f"work.retry.400ms → work.retry.400ms (binding '{key}')"
    return {
        why: "it is missing. Run: topology apply",
        "work.retry.400ms → work.due": f"came out in redrive.unrouted.dlq: {why}: it is missing",
    }


def without_way_down(live: Verifying) -> dict[str, str]:
    key = ladder_key("0")
    live.unbind("work.retry.400ms", "work.retry.200ms", key, "e")
    why = f"work.retry.400ms → work.retry.200ms (binding '{key}')"
    came_out = f"came out in redrive.unrouted.dlq: {why}: it is missing"
    return {why: "Run: topology apply"} | dict.fromkeys(steps(FAST) - steps(["400ms"]), came_out)


def without_step_exchange(live: Verifying) -> dict[str, str]:
    live.delete("exchanges", "work.retry.200ms")
    why = "no probe sent: exchange work.retry.200ms: it is missing. Run: topology apply"
    return {"exchange work.retry.200ms": "it is missing. Run: topology apply"} | dict.fromkeys(
        steps(FAST + SLOW), why
    )


def without_due_binding(live: Verifying) -> dict[str, str]:
    key = end_key(QUEUE.ladder, "work")
    live.unbind("work.due", "work", key)
    why = f"work.due → work (binding '{key}')"
    return {
        why: "it is missing. Run: topology apply",
        "work.due → work": f"came out in redrive.unrouted.dlq: {why}: it is missing",
    }


def with_a_policy_that_limits_the_length(live: Verifying) -> dict[str, str]:
    live.policy("caps", "^work$", max_length=5)
    return {"queue work: policy 'caps'": "max-length is 5: a full queue"}


def with_an_operator_policy_that_forgets(live: Verifying) -> dict[str, str]:
    live.policy("tidy", r"^work\.dlq$", kind="operator-policies", message_ttl=86_400_000)
    return {
        "queue work.dlq: operator policy 'tidy'": "message-ttl is 86400000: this dead-letter queue forgets: "
        "letters that wait longer are lost. Take message-ttl out of operator policy 'tidy', or narrow"
    }


def with_a_policy_on_overflow(live: Verifying) -> dict[str, str]:
    live.policy("drops", "^work$", overflow="drop-head")
    return {"queue work: policy 'drops'": "overflow is 'drop-head': at-least-once dead-lettering falls back"}


def with_a_lower_delivery_limit(live: Verifying) -> dict[str, str]:
    live.policy("few", "^work$", delivery_limit=3)
    return {"queue work: policy 'few'": "delivery-limit is 3: it is below the queue's own 20"}


def with_another_key_for_retries(live: Verifying) -> dict[str, str]:
    live.policy("keys", r"^work\.retry\.100ms$", dead_letter_routing_key="elsewhere")
    path = "queue work.retry.100ms: policy 'keys'"
    return {
        path: "dead-letter-routing-key is 'elsewhere': retries leave this step with another key",
        "work.retry.100ms → work.due": f"came out in redrive.unrouted.dlq: {path}: dead-letter-routing-key",
    }


def with_a_shorter_step(live: Verifying) -> dict[str, str]:
    live.policy("hurry", r"^work\.retry\.3200ms$", message_ttl=1)
    path = "queue work.retry.3200ms: policy 'hurry'"
    return {
        path: "message-ttl is 1: the step's own TTL is 640 ms, and the lower one counts",
        "work.retry.3200ms → work.due": f"the probe came early: 0.64 s were asked; {path}",
    }


BROKEN: list[Callable[[Verifying], dict[str, str]]] = [
    without_dlx_binding, without_dlx, without_dlq, without_step_binding, without_way_down,
    without_step_exchange, without_due_binding, with_a_policy_that_limits_the_length,
    with_an_operator_policy_that_forgets, with_a_policy_on_overflow, with_a_lower_delivery_limit,
    with_another_key_for_retries, with_a_shorter_step,
]  # fmt: skip


@pytest.mark.parametrize("break_it", BROKEN, ids=lambda fault: fault.__name__)
def test_what_is_broken_is_named_with_its_fix_and_nothing_else_is(
    live: Verifying, break_it: Callable[[Verifying], dict[str, str]]
) -> None:
    expected = break_it(live)

    failures = live.failures()

    assert failures.keys() == expected.keys(), failures
    assert [(path, failures[path]) for path, part in expected.items() if part not in failures[path]] == []
    assert live.messages() == {}, "no probe is left behind, whatever is broken"
