"""Arguments, transience, bindings, import and users."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.lint_fixtures import (
    NEWEST,
    OLDEST,
    Thing,
    alarms,
    bind,
    by_code,
    chain,
    dead_letters_to,
    defined,
    findings,
    notes,
    only,
    policy,
    q,
    quorum,
    x,
)
from topology.lint.definitions import Exchange, Parameter, Policy, Queue, User
from topology.lint.finding import Finding
from topology.lint.run import lint
from topology.lint.target import Target


@pytest.mark.parametrize("name", ["x-max-retries", "x-ha-policy", "queue-mode", "x-dead-letter-exchang"])
def test_an_unknown_argument_does_nothing(name: str) -> None:
    assert alarms(q("work", {name: 3})) == {"ARG-UNKNOWN": ["queue 'work'"]}


@pytest.mark.parametrize(
    ("queue", "code"),
    [
        (q("work", {"x-message-ttl": "60000", **dead_letters_to("", "letters")}), "ARG-TYPE"),
        (q("work", {"x-max-length": "5"}), "ARG-TYPE"),
        (q("work", {"x-message-ttl": -1}), "ARG-VALUE"),
        (q("work", {"x-overflow": "drop"}), "ARG-VALUE"),
        (q("work", {"x-delivery-limit": 3}), "ARG-UNSUPPORTED"),
        (q("work", {"x-dead-letter-strategy": "at-least-once"}), "ARG-UNSUPPORTED"),
        (q("work", {"x-dead-letter-routing-key": "letters"}), "ARG-INCOMPLETE"),
    ],
)
def test_an_argument_that_is_refused(queue: Queue, code: str) -> None:
    for target in (OLDEST, NEWEST):
        found = findings(queue, q("letters"), target=target)
        assert only(found, code).severity == "error"
        assert only(found, code).entity == "queue 'work'"


def test_a_priority_belongs_to_a_classic_queue() -> None:
    assert "ARG-UNSUPPORTED" in alarms(quorum("work", {"x-max-priority": 5}), target=OLDEST)
    assert alarms(q("work", {"x-max-priority": 5}), target=OLDEST) == {}


def test_a_dead_letter_key_needs_the_exchange_as_an_argument_too() -> None:
    alone = q("work", {"x-dead-letter-routing-key": "letters"})
    by_policy = policy("p", "^work$", {"dead-letter-exchange": ""})
    assert "ARG-INCOMPLETE" in alarms(alone, q("letters"), by_policy)
    assert alarms(q("work", dead_letters_to("", "letters")), q("letters")) == {}


def test_lazy_mode_has_no_effect_any_more() -> None:
    assert notes(q("work", {"x-queue-mode": "lazy"}))["QUEUE-MODE"] == ["queue 'work'"]
    assert "QUEUE-MODE" not in notes(q("work", {"x-queue-mode": "lazy"}), target=OLDEST)


def test_a_transient_queue_that_is_not_exclusive() -> None:
    assert alarms(q("work", durable=False)) == {"TRANSIENT-QUEUE": ["queue 'work'"]}
    exclusive = Queue("/", "work", durable=False, exclusive=True)
    assert alarms(exclusive) == {}


@pytest.mark.parametrize(
    "queue",
    [
        Queue("/", "work", durable=False, arguments={"x-queue-type": "quorum"}),
        Queue("/", "work", auto_delete=True, arguments={"x-queue-type": "quorum"}),
        Queue("/", "work", exclusive=True, arguments={"x-queue-type": "quorum"}),
        Queue("/", "work", durable=False, arguments={"x-queue-type": "stream"}),
    ],
)
def test_quorum_queues_and_streams_cannot_be_temporary(queue: Queue) -> None:
    assert only(findings(queue), "QUORUM-TRANSIENT").severity == "error"


def test_classic_queues_have_one_copy() -> None:
    found = only(findings(q("a"), q("b"), quorum("c")), "SINGLE-COPY")
    assert (found.severity, found.entity) == ("info", "vhost '/'")
    assert "2 of them" in found.message


def test_a_binding_to_what_is_not_there() -> None:
    assert alarms(x("events"), bind("events", "gone", "a"), q("work"), bind("events", "work", "b")) == {
        "BINDING-DANGLING": ["binding 'events' -> 'gone' ('a')"]
    }
    assert "BINDING-DANGLING" in alarms(q("work"), bind("gone", "work", "a"))
    assert "BINDING-DANGLING" in alarms(x("events"), chain("events", "gone", "a"))
    assert alarms(q("work"), bind("amq.direct", "work", "a")) == {}


def test_the_default_exchange_cannot_be_bound() -> None:
    assert alarms(q("work"), bind("", "work", "work")) == {
        "BINDING-DEFAULT-X": ["binding '' -> 'work' ('work')"]
    }


@pytest.mark.parametrize(("kind", "alarm"), [("direct", True), ("topic", False), ("fanout", False)])
def test_wildcards_are_literal_in_a_direct_exchange(kind: str, alarm: bool) -> None:
    found = alarms(x("events", kind), q("work"), bind("events", "work", "order.#"))
    assert found == ({"DIRECT-WILDCARD": ["binding 'events' -> 'work' ('order.#')"]} if alarm else {})


def test_a_wildcard_inside_a_word_is_none() -> None:
    assert alarms(x("events", "topic"), q("work"), bind("events", "work", "order*")) == {
        "TOPIC-WILDCARD-LITERAL": ["binding 'events' -> 'work' ('order*')"]
    }


def test_a_headers_binding_without_arguments_takes_all() -> None:
    assert "HEADERS-MATCH-ALL" in notes(x("h", "headers"), q("work"), bind("h", "work"))
    chosen = bind("h", "work", "", {"x-match": "any", "kind": "order"})
    assert "HEADERS-MATCH-ALL" not in notes(x("h", "headers"), q("work"), chosen)
    never = bind("h", "work", "", {"x-match": "any"})
    assert "HEADERS-MATCH-ALL" not in notes(x("h", "headers"), q("work"), never)


def test_an_exchange_that_nothing_is_bound_to() -> None:
    assert alarms(x("events", "topic")) == {"EXCHANGE-UNBOUND": ["exchange 'events'"]}
    assert alarms(x("events"), q("work"), bind("events", "work", "a")) == {}
    caught = (
        x("events", "topic", {"alternate-exchange": "rest"}),
        x("rest"),
        q("work"),
        bind("rest", "work"),
    )
    assert alarms(*caught) == {}
    onward = (x("events"), chain("events", "next", "a"), x("next"), q("work"), bind("next", "work", "a"))
    assert alarms(*onward) == {}


def test_a_queue_without_binding_is_noted() -> None:
    assert notes(q("work"))["QUEUE-UNBOUND"] == ["queue 'work'"]
    assert "QUEUE-UNBOUND" not in notes(q("work"), bind("amq.direct", "work", "work"))


def test_an_exchange_type_of_a_plugin_is_noted() -> None:
    delayed = x("later", "x-delayed-message", {"x-delayed-type": "direct"})
    assert "XTYPE-PLUGIN" in notes(delayed, q("work"), bind("later", "work", "a"))
    assert alarms(delayed, q("work"), bind("later", "work", "a")) == {}


def test_an_exchange_argument_that_is_refused() -> None:
    wrong = x("events", "direct", {"alternate-exchange": 5})
    found = findings(wrong, q("work"), bind("events", "work", "a"))
    assert only(found, "EXCHANGE-ARGUMENT").severity == "error"
    delayed = x("later", "x-delayed-message")
    assert "x-delayed-type" in only(findings(delayed), "EXCHANGE-ARGUMENT").message


def test_an_exchange_type_that_no_known_plugin_defines_is_an_alarm() -> None:
    assert "XTYPE-PLUGIN" in alarms(x("odd", "x-odd"), q("work"), bind("odd", "work"))


def test_a_virtual_host_that_the_file_does_not_make() -> None:
    without = replace(defined(q("work")), vhosts=())
    assert by_code(one for one in lint(without, NEWEST) if one.severity != "info") == {
        "BOOT-NO-VHOST": ["file"]
    }
    live = replace(without, origin="broker")
    assert "BOOT-NO-VHOST" not in by_code(lint(live, NEWEST))


def test_names_have_an_end() -> None:
    assert alarms(q("ä" * 128)) == {"NAME-TOO-LONG": [f"queue {'ä' * 128!r}"]}
    assert alarms(q("ä" * 127)) == {}


def test_reserved_names_are_left_out() -> None:
    assert "NAME-RESERVED" in alarms(q("amq.gen-abc"))
    assert alarms(Exchange("/", "amq.direct")) == {}


def test_parameters_that_need_a_plugin_are_noted() -> None:
    assert "PARAM-PLUGIN" in notes(Parameter("/", "shovel", "s", {"src-uri": "amqp://user:secret@host"}))


def test_users() -> None:
    assert alarms(User("guest", ("administrator",))) == {"USER-GUEST-ADMIN": ["user 'guest'"]}
    assert alarms(User("guest", ())) == {}
    assert alarms(User("admin", ("administrator",))) == {}
    assert alarms(User("app", ("management",), plaintext_password=True)) == {"USER-PLAINTEXT": ["user 'app'"]}


def test_findings_are_sorted_and_each_stands_once() -> None:
    things = (q("b", {"x-message-ttl": 5}), q("a", dead_letters_to("gone")), q("b", {"x-message-ttl": 5}))
    found = findings(*things)
    order = {"error": 0, "warning": 1, "info": 2}
    assert [order[one.severity] for one in found] == sorted(order[one.severity] for one in found)
    assert len(found) == len(set(found))
    assert found == lint(defined(*reversed(things)), NEWEST)


def test_what_reading_found_is_among_the_findings() -> None:
    read = Finding("JSON-INVALID", "error", "", "file", (), "a comma too many", "remove it", "3.13+")
    assert read in lint(replace(defined(), problems=(read,)), NEWEST)


def test_no_secret_reaches_a_finding() -> None:
    secret = "s3cr3t-pa55"
    things: list[Queue | Exchange | Policy | Parameter | User] = [
        Parameter("/", "shovel", "s", {"src-uri": f"amqp://user:{secret}@host", "password": secret}),
        Parameter("/", "federation-upstream", "f", {"uri": f"amqp://user:{secret}@host"}),
        User("guest", ("administrator",), plaintext_password=True),
        policy("p", ".*", {"federation-upstream-pattern": 5}),
    ]
    assert secret not in repr(findings(*things))


def test_a_finding_says_for_which_versions_it_holds() -> None:
    said: dict[str, tuple[Thing, Target, str]] = {
        "QUEUE-MODE": (q("work", {"x-queue-mode": "lazy"}), NEWEST, "3.12+"),
        "ARG-UNSUPPORTED": (q("work", {"x-delivery-limit": 3}), OLDEST, "3.10+"),
        "DROP-DELIVERY-LIMIT": (quorum("work"), NEWEST, "4.0+"),
        "POLICY-UNKNOWN-KEY": (policy("p", "", {"consumer-timeout": 60_000}), OLDEST, "<3.13"),
    }
    for code, (thing, target, versions) in said.items():
        assert only(findings(thing, target=target), code).versions == versions
    own = quorum("work", {"x-delivery-limit": 3})
    assert only(findings(own), "DROP-DELIVERY-LIMIT").versions == "3.10+"


def test_a_removed_argument_names_what_takes_its_place() -> None:
    located = q("work", {"x-queue-master-locator": "min-masters"})
    fix = only(findings(located), "ARG-UNSUPPORTED").fix
    assert fix == "use x-queue-leader-locator instead of x-queue-master-locator"
