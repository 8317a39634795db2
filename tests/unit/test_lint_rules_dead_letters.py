"""Where dead letters go: each shape that loses them, beside one that is nearly the same and does not."""

from __future__ import annotations

from tests.support.lint_fixtures import (
    OLDEST,
    alarms,
    bind,
    chain,
    dead_letters_to,
    findings,
    notes,
    only,
    policy,
    q,
    quorum,
    x,
)

WORK = q("work", dead_letters_to("dead", "work"))
SAFE = (WORK, x("dead"), q("work.dlq"), bind("dead", "work.dlq", "work"))
AT_LEAST_ONCE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}


def test_letters_that_arrive_are_no_finding() -> None:
    assert alarms(*SAFE) == {}


def test_a_missing_exchange_loses_every_letter() -> None:
    assert alarms(WORK, q("work.dlq")) == {"DLQ-UNFED": ["queue 'work.dlq'"], "DLX-MISSING": ["queue 'work'"]}
    finding = only(findings(WORK), "DLX-MISSING")
    assert finding.severity == "error"
    assert "exchange 'dead' (argument x-dead-letter-exchange) does not exist" in finding.message
    assert "declare exchange 'dead'" in finding.fix
    assert finding.path


def test_the_policy_that_names_a_missing_exchange_is_the_evidence() -> None:
    loses = policy("dead-letters", "^work$", {"dead-letter-exchange": "dead"})
    assert alarms(q("work"), loses) == {"DLX-MISSING": ["queue 'work'"]}
    assert "policy 'dead-letters'" in only(findings(q("work"), loses), "DLX-MISSING").message


def test_at_least_once_keeps_what_a_missing_exchange_cannot_take() -> None:
    kept = quorum("work", {**dead_letters_to("dead", "work"), **AT_LEAST_ONCE})
    message = only(findings(kept), "DLX-MISSING").message
    assert "stays in the queue" in message
    assert "180 s" in message
    assert "lost" not in message


def test_a_key_that_no_binding_takes_is_unroutable() -> None:
    wrong = bind("dead", "work.dlq", "orders")
    assert alarms(WORK, x("dead"), q("work.dlq"), wrong) == {
        "DLQ-UNFED": ["queue 'work.dlq'"],
        "DLX-UNROUTABLE": ["queue 'work'"],
    }
    finding = only(findings(WORK, x("dead"), q("work.dlq"), wrong), "DLX-UNROUTABLE")
    assert "no binding of exchange 'dead' takes key 'work'" in finding.message
    assert "'orders'" in finding.fix


def test_the_message_says_in_which_ways_letters_come_about() -> None:
    limited = quorum(
        "work", {**dead_letters_to("dead"), "x-message-ttl": 15_000, "x-max-length": 5, "x-delivery-limit": 3}
    )
    message = only(findings(limited, x("dead")), "DLX-UNROUTABLE").message
    for way in ("rejected", "older than 15 s", "beyond the length limit", "returned more than 3 times"):
        assert way in message


def test_the_default_exchange_needs_a_queue_of_that_name() -> None:
    parked = q("work", dead_letters_to("", "parked"))
    assert alarms(parked) == {"DLX-UNROUTABLE": ["queue 'work'"]}
    assert alarms(parked, q("parked")) == {}


def test_a_letter_without_a_key_keeps_that_of_its_binding() -> None:
    kept = q("work", dead_letters_to("dead"))
    events = (x("events", "topic"), bind("events", "work", "order.created"))
    assert alarms(kept, *events, x("dead"), q("letters"), bind("dead", "letters", "order.created")) == {}
    assert alarms(kept, *events, x("dead"), q("letters"), bind("dead", "letters", "work")) == {
        "DLX-UNROUTABLE": ["queue 'work'"]
    }


def test_an_unbound_dead_letter_exchange_is_named_with_the_queues_that_use_it() -> None:
    assert alarms(WORK, x("dead")) == {"DLX-UNBOUND": ["exchange 'dead'"], "DLX-UNROUTABLE": ["queue 'work'"]}


def test_an_alternate_exchange_takes_what_no_binding_does() -> None:
    catch_all = (x("rest", "fanout"), q("rest"), bind("rest", "rest"))
    dlx = x("dead", "direct", {"alternate-exchange": "rest"})
    assert alarms(WORK, dlx, *catch_all) == {"DLX-ONLY-VIA-AE": ["queue 'work'"]}
    assert alarms(WORK, dlx, *catch_all, q("work.dlq"), bind("dead", "work.dlq", "work")) == {}


def test_an_alternate_exchange_is_not_asked_when_a_binding_matches_and_leads_nowhere() -> None:
    catch_all = (x("rest", "fanout"), q("rest"), bind("rest", "rest"))
    dlx = x("dead", "topic", {"alternate-exchange": "rest"})
    nowhere = (x("nowhere"), chain("dead", "nowhere", "work"))
    assert "DLX-UNROUTABLE" in alarms(WORK, dlx, *catch_all, *nowhere)
    assert "DLX-UNROUTABLE" not in alarms(WORK, dlx, *catch_all, x("nowhere"), chain("dead", "nowhere", "w"))


def test_letters_go_through_exchange_to_exchange_bindings_and_their_alternates() -> None:
    hops = (x("dead", "topic"), chain("dead", "second", "#"), q("letters"))
    second = x("second", "direct", {"alternate-exchange": "third"})
    third = (x("third", "fanout"), bind("third", "letters"))
    assert alarms(WORK, *hops, second, *third) == {"DLX-ONLY-VIA-AE": ["queue 'work'"]}
    assert alarms(WORK, *hops, x("second"), bind("second", "letters", "work")) == {}
    assert "DLX-UNROUTABLE" in alarms(WORK, *hops, x("second"), bind("second", "letters", "other"))


def test_only_some_keys_of_a_topic_queue_may_be_bound() -> None:
    kept = (q("work", dead_letters_to("dead")), x("events", "topic"), bind("events", "work", "order.*"))
    some = (x("dead"), q("letters"), bind("dead", "letters", "order.created"))
    assert alarms(*kept, *some) == {"DLX-PARTIAL": ["queue 'work'"]}
    assert alarms(*kept, x("dead", "topic"), q("letters"), bind("dead", "letters", "order.#")) == {}


def test_what_keys_come_through_a_fanout_is_unknown_and_no_alarm() -> None:
    things = (
        q("work", dead_letters_to("dead")),
        x("events", "fanout"),
        bind("events", "work"),
        x("dead"),
        q("letters"),
        bind("dead", "letters", "order.created"),
    )
    assert alarms(*things) == {}
    assert notes(*things)["DLX-PARTIAL"] == ["queue 'work'"]


def test_a_ladder_of_delay_queues_reads_words_that_only_its_publishers_choose() -> None:
    step = q("retry.1s", {"x-message-ttl": 1_000, **dead_letters_to("due")})
    steps = (
        x("retry", "topic"),
        bind("retry", "retry.1s", "1.#"),
        x("due", "topic"),
        bind("due", "work", "*.work"),
    )
    assert alarms(q("work"), step, *steps) == {}
    assert notes(q("work"), step, *steps)["DLX-PARTIAL"] == ["queue 'retry.1s'"]


def test_headers_bindings_that_look_into_the_message_are_undecided() -> None:
    by_header = bind("dead", "work.dlq", "", {"x-match": "all", "kind": "order"})
    things = (WORK, x("dead", "headers"), q("work.dlq"), by_header)
    assert alarms(*things) == {}
    assert notes(*things)["DLX-UNDECIDED"] == ["queue 'work'"]
    assert "DLX-UNDECIDED" not in notes(WORK, x("dead", "headers"), q("work.dlq"), bind("dead", "work.dlq"))


def test_an_alternate_exchange_of_a_headers_exchange_takes_letters_only_perhaps() -> None:
    caught = (
        x("dead", "headers", {"alternate-exchange": "rest"}),
        x("rest", "fanout"),
        q("rest"),
        bind("rest", "rest"),
    )
    by_header = bind("dead", "work.dlq", "", {"x-match": "all", "kind": "order"})
    assert alarms(WORK, q("work.dlq"), by_header, *caught) == {}
    assert "DLX-UNDECIDED" in notes(WORK, q("work.dlq"), by_header, *caught)


def test_a_consistent_hash_exchange_takes_every_letter() -> None:
    hashed = x("dead", "x-consistent-hash")
    assert "DLX-UNROUTABLE" not in alarms(WORK, hashed, q("work.dlq"), bind("dead", "work.dlq", "10"))
    assert "DLX-UNBOUND" in alarms(WORK, hashed)
    two = (q("1.dlq"), q("2.dlq"), bind("dead", "1.dlq", "10"), bind("dead", "2.dlq", "10"))
    assert "DLX-FANS-OUT" not in notes(WORK, hashed, *two)
    # The one that it picks, and beside it another.
    beside = (q("3.dlq"), x("all", "fanout"), chain("all", "dead"), bind("all", "3.dlq"))
    work = q("work", dead_letters_to("all", "work"))
    assert notes(work, hashed, *two, *beside)["DLX-FANS-OUT"] == ["queue 'work'"]


def test_a_dead_letter_exchange_must_outlive_its_bindings_and_the_node() -> None:
    rest = (WORK, q("work.dlq"), bind("dead", "work.dlq", "work"))
    assert alarms(*rest, x("dead", auto_delete=True)) == {"DLX-AUTO-DELETE": ["exchange 'dead'"]}
    assert alarms(*rest, x("dead", durable=False)) == {"DLX-TRANSIENT": ["exchange 'dead'"]}
    transient = q("work", dead_letters_to("dead", "work"), durable=False)
    assert "DLX-TRANSIENT" not in alarms(transient, *rest[1:], x("dead", durable=False))
    assert alarms(*rest, x("dead")) == {}


def test_a_dead_letter_exchange_by_name_alone_is_unused() -> None:
    named = (x("orders.dlx"), q("orders.letters"), bind("orders.dlx", "orders.letters", "orders"))
    assert alarms(*named) == {"DLX-UNUSED": ["exchange 'orders.dlx'"]}
    assert alarms(*named, q("orders", dead_letters_to("orders.dlx", "orders"))) == {}
    later = policy("later", "^orders$", {"dead-letter-exchange": "orders.dlx"})
    assert alarms(*named, later) == {"POLICY-NO-MATCH": ["policy 'later'"]}


def test_a_missing_alternate_exchange_catches_nothing() -> None:
    events = x("events", "direct", {"alternate-exchange": "rest"})
    assert alarms(events, q("work"), bind("events", "work", "work")) == {"AE-MISSING": ["exchange 'events'"]}
    assert "AE-MISSING" not in alarms(events, x("rest", "fanout"), q("work"), bind("rest", "work"))


def test_a_fanout_shared_by_queues_copies_the_letters_of_each_to_all() -> None:
    shared = (
        q("a", dead_letters_to("dead", "a")),
        q("b", dead_letters_to("dead", "b")),
        q("a.dlq"),
        q("b.dlq"),
        bind("dead", "a.dlq", "a"),
        bind("dead", "b.dlq", "b"),
    )
    fanout = (*shared, x("dead", "fanout"))
    assert alarms(*fanout) == {"FANOUT-KEYS-IGNORED": ["exchange 'dead'"]}
    assert notes(*fanout)["DLX-FANS-OUT"] == ["queue 'a'", "queue 'b'"]
    direct = (*shared, x("dead", "direct"))
    assert alarms(*direct) == {}
    assert "DLX-FANS-OUT" not in notes(*direct)


def test_a_fanout_bound_with_one_key_is_as_meant() -> None:
    assert alarms(x("news", "fanout"), q("a"), q("b"), bind("news", "a"), bind("news", "b")) == {}


def test_a_dead_letter_queue_by_name_that_gets_no_letters_is_unfed() -> None:
    assert alarms(q("work.dlq")) == {"DLQ-UNFED": ["queue 'work.dlq'"]}
    by_hand = (q("work.dlq"), x("parking"), bind("parking", "work.dlq", "work"))
    assert alarms(*by_hand) == {}
    assert notes(*by_hand)["DLQ-UNFED"] == ["queue 'work.dlq'"]
    catch_all = (
        x("events", "topic", {"alternate-exchange": "rest"}),
        x("rest", "fanout"),
        q("dead"),
        bind("rest", "dead"),
    )
    assert "DLQ-UNFED" not in {**alarms(*catch_all), **notes(*catch_all)}


def test_a_full_classic_queue_loses_the_letters_it_refuses_and_a_quorum_queue_does_not() -> None:
    limit = {"x-max-length": 5, "x-overflow": "reject-publish"}
    refuses = (WORK, x("dead"), q("work.dlq", limit), bind("dead", "work.dlq", "work"))
    assert alarms(*refuses) == {"DLX-TARGET-FULL": ["queue 'work.dlq'"]}
    assert "'work' are lost" in only(findings(*refuses), "DLX-TARGET-FULL").message
    takes = (WORK, x("dead"), quorum("work.dlq", limit), bind("dead", "work.dlq", "work"))
    assert alarms(*takes) == {}
    careful = quorum("work", {**dead_letters_to("dead", "work"), **AT_LEAST_ONCE})
    stalls = (careful, x("dead"), quorum("work.dlq", limit), bind("dead", "work.dlq", "work"))
    assert alarms(*stalls) == {"DLX-TARGET-FULL": ["queue 'work.dlq'"]}
    assert "stay there unseen" in only(findings(*stalls), "DLX-TARGET-FULL").message


def test_at_least_once_needs_reject_publish() -> None:
    rest = (x("dead"), quorum("work.dlq"), bind("dead", "work.dlq", "work"))
    strategy = {**dead_letters_to("dead", "work"), "x-dead-letter-strategy": "at-least-once"}
    for overflow in ({}, {"x-overflow": "drop-head"}):
        falls_back = quorum("work", {**strategy, **overflow})
        assert alarms(falls_back, *rest) == {"ALO-OVERFLOW": ["queue 'work'"]}
    assert alarms(quorum("work", {**strategy, "x-overflow": "reject-publish"}), *rest) == {}


def test_at_least_once_needs_a_dead_letter_exchange() -> None:
    assert alarms(quorum("work", AT_LEAST_ONCE), target=OLDEST) == {"ALO-NO-DLX": ["queue 'work'"]}


def test_forwarding_without_confirm_is_noted() -> None:
    assert notes(*SAFE)["AT-MOST-ONCE"] == ["queue 'work'"]


def test_only_dead_letters_come_through_an_alternate_exchange_of_a_dead_letter_exchange() -> None:
    """What is bound to it with a wildcard does not get any key, but those of the letters."""
    caught = (
        x("dead", "direct", {"alternate-exchange": "rest"}),
        x("rest", "topic"),
        q("catch", dead_letters_to("last")),
        bind("rest", "catch", "#"),
        x("last"),
        q("last.letters"),
        bind("last", "last.letters", "work"),
    )
    assert "DLX-PARTIAL" not in alarms(WORK, *caught) | notes(WORK, *caught)
