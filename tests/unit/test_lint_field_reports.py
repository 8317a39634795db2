"""What went wrong for other people, as small topologies: the linter names each of them."""

from __future__ import annotations

from tests.support.lint_fixtures import (
    alarms,
    bind,
    dead_letters_to,
    findings,
    notes,
    only,
    policy,
    q,
    quorum,
    x,
)


def test_a_queue_dies_with_its_name_as_key_and_the_dead_letter_queue_is_bound_with_the_tasks() -> None:
    """Celery publishes to the default exchange, so a message dies with the queue's name as its key."""
    work = q("jobs.email", dead_letters_to("jobs.dlx"))
    rest = (x("jobs.dlx"), q("jobs.email.dlq"), bind("jobs.dlx", "jobs.email.dlq", "email.send"))
    finding = only(findings(work, *rest), "DLX-UNROUTABLE")
    assert finding.entity == "queue 'jobs.email'"
    assert "takes key 'jobs.email'" in finding.message
    assert "'email.send'" in finding.fix
    explicit = q("jobs.email", dead_letters_to("jobs.dlx", "email.send"))
    assert alarms(explicit, *rest) == {}


def test_both_keys_are_seen_where_a_task_exchange_and_the_default_exchange_lead_to_the_queue() -> None:
    bound = (x("tasks"), bind("tasks", "jobs.email", "email.send"))
    work = q("jobs.email", dead_letters_to("jobs.dlx"))
    rest = (x("jobs.dlx"), q("jobs.email.dlq"), bind("jobs.dlx", "jobs.email.dlq", "email.send"))
    assert notes(work, *bound, *rest)["DLX-KEY-VARIES"] == ["queue 'jobs.email'"]
    explicit = q("jobs.email", dead_letters_to("jobs.dlx", "email.send"))
    assert "DLX-KEY-VARIES" not in notes(explicit, *bound, *rest)
    caught = (
        x("jobs.dlx", "direct", {"alternate-exchange": "rest"}),
        x("rest", "fanout"),
        q("rest"),
        bind("rest", "rest"),
    )
    assert "DLX-KEY-VARIES" not in notes(work, *bound, *rest[1:], *caught)


def test_dead_lettering_itself_loses_messages() -> None:
    """Bounded or expiring dead-letter queues, retry queues that expire, a target that is missing."""
    work = quorum(
        "work",
        {
            **dead_letters_to("dead", "work"),
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    )
    dlx = (x("dead"), bind("dead", "work.dlq", "work"))
    assert "BINDING-DANGLING" in alarms(work, *dlx)
    assert "DLX-UNROUTABLE" in alarms(work, *dlx)
    limited = policy("limits", "dlq$", {"max-length": 5}, operator=True)
    assert alarms(work, *dlx, q("work.dlq"), limited) == {"DLQ-MAXLEN-DROP": ["queue 'work.dlq'"]}
    assert alarms(work, *dlx, q("work.dlq", {"x-message-ttl": 1_000})) == {
        "DLQ-TTL-DROP": ["queue 'work.dlq'"]
    }
    retry = q("work.retry", {"x-message-ttl": 5_000, "x-expires": 1_000, **dead_letters_to("", "work")})
    assert alarms(work, *dlx, q("work.dlq"), retry) == {"QUEUE-EXPIRES": ["queue 'work.retry'"]}
    assert alarms(work, *dlx, q("work.dlq")) == {}


def test_a_short_delay_waits_behind_a_long_one_in_a_queue_without_ttl() -> None:
    shared = q("email.retry", dead_letters_to("", "email"))
    assert alarms(q("email"), shared) == {"DELAY-NO-TTL": ["queue 'email.retry'"]}
    tiers = [
        q(f"email.retry.{seconds}s", {"x-message-ttl": seconds * 1_000, **dead_letters_to("", "email")})
        for seconds in (1, 20)
    ]
    assert alarms(q("email"), *tiers) == {}


def test_a_retry_loop_is_dropped_without_a_reject_and_endless_with_one() -> None:
    back = {"x-message-ttl": 1_000, **dead_letters_to("", "email")}
    automatic = q("email", {"x-message-ttl": 60_000, **dead_letters_to("", "email.retry.30s")})
    found = alarms(automatic, q("email.retry.30s", back))
    assert found.keys() == {"CYCLE-AUTO-DROP", "CYCLE-REJECT"}
    rejected = q("email", dead_letters_to("", "email.retry.30s"))
    assert alarms(rejected, q("email.retry.30s", back)) == {"CYCLE-REJECT": ["queue 'email'"]}
    published = q("email", dead_letters_to("", "email.dlq"))
    assert alarms(published, q("email.dlq"), q("email.retry.30s", back)) == {}
