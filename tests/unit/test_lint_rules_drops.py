"""Messages that leave a queue and are gone; dead-letter queues that forget; loops; delays."""

from __future__ import annotations

import pytest

from tests.support.lint_fixtures import (
    NEWEST,
    OLDEST,
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
from topology.lint.definitions import Queue


def test_a_ttl_without_a_dead_letter_exchange_drops() -> None:
    assert alarms(q("work", {"x-message-ttl": 60_000})) == {"DROP-TTL": ["queue 'work'"]}
    kept = q("work", {"x-message-ttl": 60_000, **dead_letters_to("", "old")})
    assert alarms(kept, q("old")) == {}
    assert "1 min" in only(findings(q("work", {"x-message-ttl": 60_000})), "DROP-TTL").message


def test_a_length_limit_drops_unless_it_refuses_or_dead_letters() -> None:
    assert alarms(q("work", {"x-max-length": 10})) == {"DROP-MAXLEN": ["queue 'work'"]}
    assert alarms(q("work", {"x-max-length-bytes": 10})) == {"DROP-MAXLEN": ["queue 'work'"]}
    assert alarms(q("work", {"x-max-length": 10, "x-overflow": "reject-publish"})) == {}
    assert alarms(q("work", {"x-max-length": 10, **dead_letters_to("", "over")}), q("over")) == {}


def test_a_stream_keeps_by_age_and_size() -> None:
    assert alarms(q("log", {"x-queue-type": "stream", "x-max-age": "7D", "x-max-length-bytes": 10})) == {}


def test_a_quorum_queue_drops_at_its_delivery_limit() -> None:
    assert alarms(quorum("work"), target=NEWEST) == {"DROP-DELIVERY-LIMIT": ["queue 'work'"]}
    assert alarms(quorum("work"), target=OLDEST) == {}
    assert alarms(quorum("work", {"x-delivery-limit": 5}), target=OLDEST) == {
        "DROP-DELIVERY-LIMIT": ["queue 'work'"]
    }
    assert alarms(quorum("work", {"x-delivery-limit": 2_000_000_000})) == {}
    assert only(findings(quorum("work")), "DROP-DELIVERY-LIMIT").versions == "4.0+"
    own = only(findings(quorum("work", {"x-delivery-limit": 5})), "DROP-DELIVERY-LIMIT")
    assert own.versions == "3.10+"
    assert alarms(quorum("work", dead_letters_to("", "letters")), q("letters")) == {}


def test_a_queue_without_dead_letter_exchange_is_noted() -> None:
    assert notes(q("work"))["NO-DLX"] == ["queue 'work'"]
    assert "NO-DLX" not in notes(q("work", dead_letters_to("", "letters")), q("letters"))


def test_a_queue_that_expires_takes_its_messages_along() -> None:
    assert alarms(q("work", {"x-expires": 1_000})) == {"QUEUE-EXPIRES": ["queue 'work'"]}
    by_policy = policy("idle", "^work$", {"expires": 1_000})
    assert alarms(q("work"), by_policy) == {"QUEUE-EXPIRES": ["queue 'work'"]}


def test_a_durable_auto_delete_queue_takes_its_messages_along() -> None:
    assert alarms(q("work", auto_delete=True)) == {"QUEUE-AUTO-DELETE": ["queue 'work'"]}


def test_an_exclusive_queue_is_temporary_and_may_forget() -> None:
    reply = Queue("/", "reply", False, True, True, {"x-expires": 1_000, "x-message-ttl": 1_000})
    assert alarms(reply) == {}
    shared = q("reply", {"x-message-ttl": 1_000, "x-max-length": 5}, durable=False, auto_delete=True)
    assert alarms(shared) == {"TRANSIENT-QUEUE": ["queue 'reply'"]}


def test_quorum_queues_do_not_know_reject_publish_dlx() -> None:
    arguments = {"x-max-length": 5, "x-overflow": "reject-publish-dlx", **dead_letters_to("", "over")}
    assert "OVERFLOW-FALLBACK" not in alarms(q("work", arguments), q("over"))
    assert alarms(quorum("work", arguments), q("over")) == {"OVERFLOW-FALLBACK": ["queue 'work'"]}


def test_a_dead_letter_key_alone_does_nothing() -> None:
    alone = policy("key", "^work$", {"dead-letter-routing-key": "letters"})
    assert alarms(q("work"), alone) == {"DLX-KEY-ALONE": ["queue 'work'"]}
    # As an argument it is refused, which is told.
    assert "DLX-KEY-ALONE" not in alarms(q("work", {"x-dead-letter-routing-key": "k"}))
    both = policy("key", "^work$", {"dead-letter-exchange": "", "dead-letter-routing-key": "letters"})
    assert alarms(q("work"), both, q("letters")) == {}


WORK = q("work", dead_letters_to("", "work.dlq"))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [({"x-message-ttl": 1_000}, "DLQ-TTL-DROP"), ({"x-max-length": 5}, "DLQ-MAXLEN-DROP")],
)
def test_a_dead_letter_queue_must_not_forget(arguments: dict[str, object], code: str) -> None:
    assert alarms(WORK, q("work.dlq", arguments)) == {code: ["queue 'work.dlq'"]}
    assert alarms(WORK, q("work.dlq")) == {}


def test_a_queue_is_a_dead_letter_queue_by_what_reaches_it_too() -> None:
    parked = (q("work", dead_letters_to("dead", "work")), x("dead"), bind("dead", "parked", "work"))
    assert alarms(*parked, q("parked", {"x-max-length": 5})) == {"DLQ-MAXLEN-DROP": ["queue 'parked'"]}
    also_work = (x("events"), bind("events", "parked", "work"))
    assert alarms(*parked, *also_work, q("parked", {"x-max-length": 5})) == {
        "DROP-MAXLEN": ["queue 'parked'"]
    }


def test_an_operator_policy_that_limits_a_dead_letter_queue_is_named() -> None:
    limits = policy("limits", "dlq$", {"max-length": 5}, operator=True)
    assert alarms(WORK, q("work.dlq"), limits) == {"DLQ-MAXLEN-DROP": ["queue 'work.dlq'"]}
    assert (
        "operator policy 'limits'" in only(findings(WORK, q("work.dlq"), limits), "DLQ-MAXLEN-DROP").message
    )


def test_the_smaller_of_argument_and_operator_policy_is_in_force() -> None:
    limits = policy("limits", "dlq$", {"max-length": 5}, operator=True)
    message = only(findings(WORK, q("work.dlq", {"x-max-length": 3}), limits), "DLQ-MAXLEN-DROP").message
    assert "beyond 3 messages (argument x-max-length)" in message


def test_a_dead_letter_queue_with_a_delivery_limit_of_its_own_is_an_alarm_and_with_the_default_a_note() -> (
    None
):
    assert "DLQ-DELIVERY-LIMIT" in notes(WORK, quorum("work.dlq"))
    assert only(findings(WORK, quorum("work.dlq")), "DLQ-DELIVERY-LIMIT").versions == "4.0+"
    assert "DLQ-DELIVERY-LIMIT" in alarms(WORK, quorum("work.dlq", {"x-delivery-limit": 5}))
    endless = quorum("work.dlq", {"x-delivery-limit": 2_000_000_000})
    assert "DLQ-DELIVERY-LIMIT" not in {**notes(WORK, endless), **alarms(WORK, endless)}


def test_a_transient_dead_letter_queue_forgets_at_a_restart() -> None:
    found = alarms(WORK, q("work.dlq", durable=False))
    assert found == {"DLQ-TRANSIENT": ["queue 'work.dlq'"], "TRANSIENT-QUEUE": ["queue 'work.dlq'"]}


def test_a_dead_letter_queue_that_dead_letters_to_itself_never_gets_rid_of_a_rejected_letter() -> None:
    loop = q("work.dlq", dead_letters_to("", "work.dlq"))
    assert alarms(WORK, loop) == {"CYCLE-REJECT": ["queue 'work.dlq'"]}


def test_a_queue_whose_letters_expire_back_into_it_drops_them_at_the_return() -> None:
    loop = q("work.dlq", {"x-message-ttl": 1_000, **dead_letters_to("", "work.dlq")})
    assert "CYCLE-AUTO-DROP" in alarms(WORK, loop)


def test_an_automatic_cycle_over_several_queues_drops_silently() -> None:
    ring = [
        q(name, {"x-message-ttl": 1_000, **dead_letters_to("", after)})
        for name, after in (("a", "b"), ("b", "c"), ("c", "a"))
    ]
    found = only(findings(*ring), "CYCLE-AUTO-DROP")
    assert found.severity == "error"
    for name in ("'a'", "'b'", "'c'"):
        assert name in found.message
    assert found.path


def test_a_line_of_delays_is_no_cycle() -> None:
    line = [
        q(name, {"x-message-ttl": 1_000, **dead_letters_to("", after)})
        for name, after in (("a", "b"), ("b", "c"), ("c", "end"))
    ]
    assert alarms(*line, q("end")) == {}


def test_a_retry_loop_through_reject_is_endless() -> None:
    loop = (
        q("work", dead_letters_to("", "work.retry")),
        q("work.retry", {"x-message-ttl": 1_000, **dead_letters_to("", "work")}),
    )
    assert alarms(*loop) == {"CYCLE-REJECT": ["queue 'work'"]}


def test_a_quorum_queue_must_not_rely_on_its_delivery_limit_in_a_retry_loop() -> None:
    loop = (
        quorum("work", {"x-delivery-limit": 3, **dead_letters_to("", "work.retry")}),
        q("work.retry", {"x-message-ttl": 1_000, **dead_letters_to("", "work")}),
    )
    assert set(alarms(*loop)) == {"CYCLE-REJECT", "CYCLE-AUTO-DROP"}


def test_two_retry_loops_are_two_findings() -> None:
    loops = [
        queue
        for name in ("a", "b")
        for queue in (
            q(name, dead_letters_to("", f"{name}.retry")),
            q(f"{name}.retry", {"x-message-ttl": 1_000, **dead_letters_to("", name)}),
        )
    ]
    assert alarms(*loops) == {"CYCLE-REJECT": ["queue 'a'", "queue 'b'"]}


def test_a_delay_queue_needs_a_ttl_of_its_own() -> None:
    back = dead_letters_to("", "work")
    assert alarms(q("work"), q("work.retry", back)) == {"DELAY-NO-TTL": ["queue 'work.retry'"]}
    assert alarms(q("work"), q("work.retry", {"x-message-ttl": 1_000, **back})) == {}


def test_a_work_queue_that_is_named_for_retries_and_dead_letters_is_no_delay_queue() -> None:
    assert alarms(q("retry-failed-mails", dead_letters_to("", "mails.dlq")), q("mails.dlq")) == {}


def test_a_retry_through_a_shared_exchange_comes_back_as_several_copies() -> None:
    def retry(key: str) -> Queue:
        return q("mail.retry", {"x-message-ttl": 1_000, **dead_letters_to("events", key)})

    events = (x("events", "topic"), q("mail"), q("audit"), bind("events", "mail", "order.*"))
    assert alarms(*events, bind("events", "audit", "#"), retry("order.created")) == {
        "RETRY-DUPLICATES": ["queue 'mail.retry'"]
    }
    assert alarms(*events, bind("events", "audit", "user.*"), retry("order.created")) == {}


def test_before_4_a_negative_delivery_limit_drops_at_the_first_return() -> None:
    work = quorum("work", {"x-delivery-limit": -1})
    found = findings(work, target=OLDEST)
    assert "a message that is returned at all" in only(found, "DROP-DELIVERY-LIMIT").message
    value = only(found, "ARG-VALUE")
    assert "gone at its first return" in value.message
    assert value.fix == "set x-delivery-limit to a whole number of at least 0"
    assert alarms(work, target=NEWEST) == {}


def test_a_retry_through_an_exchange_that_picks_one_queue_comes_back_once() -> None:
    retry = q("mail.retry", {"x-message-ttl": 1_000, **dead_letters_to("shards", "mail")})
    shards = (q("mail.1"), q("mail.2"), bind("shards", "mail.1", "1"), bind("shards", "mail.2", "1"))
    assert alarms(retry, *shards, x("shards", "x-consistent-hash")) == {}
    assert alarms(retry, *shards, x("shards", "fanout")) == {"RETRY-DUPLICATES": ["queue 'mail.retry'"]}
