"""What is in force on a queue: its arguments, the one policy, the one operator policy, the defaults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.definitions import VHOST, broker, exchange, policy, queue, quorum
from topology.lint.broker import Broker
from topology.lint.definitions import Policy, Queue
from topology.lint.effective import QueueInForce, Setting
from topology.lint.regex import UndecidedPattern, matcher
from topology.lint.target import NEWEST, Target


def settings(
    given: Queue, *policies: Policy, target: Target = NEWEST, default: str | None = None
) -> QueueInForce:
    on = broker(given, *policies, target=target, default_queue_type=default)
    return on.queue_settings(on.vhosts[VHOST].queues[given.name])


def value(setting: Setting[Any] | None) -> Any:
    return None if setting is None else setting.value


class TestWhichPolicy:
    def test_the_highest_priority_alone_applies(self) -> None:
        low = policy("low", ".*", {"message-ttl": 1, "max-length": 5}, priority=1)
        high = policy("high", "^q", {"message-ttl": 2}, priority=2)
        found = settings(queue("q"), low, high)
        assert (found.ttl_ms, found.max_length) == (Setting(2, "policy 'high'"), None)
        assert (found.applied.policy, found.applied.shadowed) == (high, (low,))

    def test_equal_priorities_are_a_tie(self) -> None:
        one, other = policy("a", "", {"max-length": 1}), policy("b", "q", {"max-length": 2})
        found = settings(queue("q"), one, other)
        assert (found.applied.policy, found.applied.ties) == (one, (other,))

    def test_a_pattern_matches_anywhere_in_the_name(self) -> None:
        assert value(settings(queue("my.queue"), policy("p", "que", {"max-length": 1})).max_length) == 1
        assert value(settings(queue("my.queue"), policy("p", "^que", {"max-length": 1})).max_length) is None

    @pytest.mark.parametrize(
        ("apply_to", "classic", "quorum_queue"),
        [
            ("all", 1, 1),
            ("queues", 1, 1),
            ("exchanges", None, None),
            ("classic_queues", 1, None),
            ("quorum_queues", None, 1),
            ("streams", None, None),
        ],
    )
    def test_it_applies_to_its_kind(self, apply_to: str, classic: object, quorum_queue: object) -> None:
        given = policy("p", "", {"max-length": 1}, apply_to=apply_to)
        assert value(settings(queue("q"), given).max_length) == classic
        assert value(settings(quorum("q"), given).max_length) == quorum_queue

    def test_one_key_that_the_type_does_not_know_passes_the_whole_policy_over(self) -> None:
        mixed = policy("mixed", "", {"delivery-limit": 5, "message-ttl": 7}, priority=9)
        plain = policy("plain", "", {"message-ttl": 1})
        classic = settings(queue("q"), mixed, plain)
        assert value(classic.ttl_ms) == 1
        assert [(one.policy, one.keys) for one in classic.applied.skipped] == [(mixed, ("delivery-limit",))]
        assert value(settings(quorum("q"), mixed, plain).ttl_ms) == 7

    def test_a_stream_takes_no_dead_letter_policy(self) -> None:
        given = policy("p", "", {"dead-letter-exchange": "x", "max-age": "1D"})
        found = settings(queue("s", queue_type="stream"), given)
        assert (found.dlx, found.max_age) == (None, None)

    def test_one_of_another_virtual_host_does_not(self) -> None:
        given = Policy("other", "p", "", {"max-length": 1})
        assert settings(queue("q"), given).max_length is None

    def test_a_pattern_that_cannot_be_tried_is_undecided(self) -> None:
        given = policy("p", r"^\Qq\E", {"max-length": 1})
        on = broker(queue("q"), given)
        assert on.queue_settings(on.vhosts[VHOST].queues["q"]).applied.undecided == (given,)
        assert list(on.bad_patterns) == [r"^\Qq\E"]


class TestArgumentAndPolicy:
    def test_of_limits_the_smaller_holds(self) -> None:
        given = queue("q", message_ttl=5, max_length=5, max_length_bytes=5, expires=5)
        for limit in (3, 9):
            keys = ("message-ttl", "max-length", "max-length-bytes", "expires")
            found = settings(given, policy("p", "", dict.fromkeys(keys, limit)))
            held = (found.ttl_ms, found.max_length, found.max_length_bytes, found.expires_ms)
            assert {value(one) for one in held} == {min(limit, 5)}

    def test_the_dead_letter_exchange_and_its_key_are_settled_one_by_one(self) -> None:
        given = policy("p", "", {"dead-letter-exchange": "by.policy", "dead-letter-routing-key": "failed"})
        found = settings(queue("q", dead_letter_exchange="own"), given)
        assert found.dlx == Setting("own", "argument x-dead-letter-exchange")
        assert found.dead_letter_key == Setting("failed", "policy 'p'")

    def test_overflow_differs_by_type(self) -> None:
        given = policy("p", "", {"overflow": "reject-publish"})
        assert settings(queue("q", overflow="drop-head"), given).overflow == "drop-head"
        assert settings(quorum("q", overflow="drop-head"), given).overflow == "reject-publish"

    def test_queue_expiry_of_a_quorum_queue_was_the_policys_alone_on_3_10(self) -> None:
        given = policy("p", "", {"expires": 9})
        assert value(settings(quorum("q", expires=5), given, target=Target(3, 10)).expires_ms) == 9
        assert value(settings(quorum("q", expires=5), given).expires_ms) == 5

    def test_a_value_that_the_broker_refuses_does_not_count(self) -> None:
        assert settings(queue("q", message_ttl="1000")).ttl_ms is None
        assert settings(queue("q", message_ttl=True)).ttl_ms is None


class TestOperatorPolicy:
    @pytest.mark.parametrize(("own", "limit", "held"), [(5, 9, "policy 'p'"), (9, 5, "operator policy 'o'")])
    def test_only_tightens(self, own: int, limit: int, held: str) -> None:
        given = (policy("p", "", {"max-length": own}), policy("o", "", {"max-length": limit}, operator=True))
        assert settings(queue("q"), *given).max_length == Setting(5, held)

    @pytest.mark.parametrize(
        ("own", "limit", "before", "now"), [(5, -1, -1, 5), (-1, 5, -1, 5), (-3, -1, -3, None), (5, 7, 5, 5)]
    )
    def test_a_negative_delivery_limit_loosens_from_4_0(
        self, own: int, limit: int, before: int, now: int | None
    ) -> None:
        given = (
            policy("p", "", {"delivery-limit": own}),
            policy("o", "", {"delivery-limit": limit}, operator=True),
        )
        assert value(settings(quorum("q"), *given, target=Target(3, 13)).delivery_limit) == before
        assert value(settings(quorum("q"), *given).delivery_limit) == now

    def test_adds_its_keys(self) -> None:
        given = (policy("p", "", {"max-length": 1}), policy("o", "", {"message-ttl": 5}, operator=True))
        found = settings(queue("q"), *given)
        assert (value(found.max_length), value(found.ttl_ms)) == (1, 5)

    def test_decides_overflow(self) -> None:
        given = (
            policy("p", "", {"overflow": "drop-head"}),
            policy("o", "", {"overflow": "reject-publish"}, operator=True),
        )
        assert settings(queue("q"), *given).overflow == "reject-publish"


class TestDeliveryLimit:
    @pytest.mark.parametrize(
        ("argument", "by_policy", "before", "now"),
        [
            (None, None, None, 20),
            (5, None, 5, 5),
            (5, 3, 3, 3),
            (-1, None, -1, None),
            (-1, 3, -1, 3),
            ("5", None, None, 20),
        ],
    )
    def test_of_a_quorum_queue(
        self, argument: object, by_policy: int | None, before: object, now: object
    ) -> None:
        given = quorum("q", **({} if argument is None else {"delivery_limit": argument}))
        policies = [] if by_policy is None else [policy("p", "", {"delivery-limit": by_policy})]
        assert value(settings(given, *policies, target=Target(3, 13)).delivery_limit) == before
        assert value(settings(given, *policies).delivery_limit) == now

    def test_a_classic_queue_has_none(self) -> None:
        assert settings(queue("q", delivery_limit=5)).delivery_limit is None


class TestAtLeastOnce:
    def test_needs_a_quorum_queue_an_exchange_and_reject_publish(self) -> None:
        found = settings(quorum("q", dead_letter_strategy="at-least-once"))
        assert (found.strategy, found.strategy_lacks) == (
            "at-most-once",
            ("a dead-letter exchange", "overflow reject-publish"),
        )
        complete = quorum(
            "q", dead_letter_strategy="at-least-once", dead_letter_exchange="", overflow="reject-publish"
        )
        assert (settings(complete).strategy, settings(complete).strategy_lacks) == ("at-least-once", ())

    def test_reject_publish_dlx_falls_back_to_drop_head(self) -> None:
        found = settings(
            quorum(
                "q",
                dead_letter_strategy="at-least-once",
                dead_letter_exchange="",
                overflow="reject-publish-dlx",
            )
        )
        assert (found.overflow_requested.value, found.overflow) == ("reject-publish-dlx", "drop-head")
        assert found.strategy == "at-most-once"


class TestQueueType:
    def test_is_the_virtual_hosts_default_for_durable_shared_queues(self) -> None:
        assert settings(queue("q"), default="quorum").type == Setting("quorum", "default of vhost '/'")
        assert settings(queue("q", durable=False), default="quorum").type.value == "classic"
        assert settings(queue("q", auto_delete=True), default="quorum").type.value == "classic"
        assert settings(queue("q", queue_type="stream"), default="quorum").type.value == "stream"

    def test_may_be_named_by_its_module(self) -> None:
        assert settings(queue("q"), default="rabbit_quorum_queue").type.value == "quorum"


def alternate(given: Broker) -> Setting[str] | None:
    return given.exchange_settings(given.vhosts[VHOST].exchanges["x"]).alternate


def test_an_alternate_exchange_by_argument_beats_one_by_policy() -> None:
    by_policy = policy("p", "", {"alternate-exchange": "by.policy"})
    assert alternate(broker(exchange("x"), by_policy)) == Setting("by.policy", "policy 'p'")
    own = alternate(broker(exchange("x", alternate="own"), by_policy))
    assert own == Setting("own", "argument alternate-exchange")


class TestPattern:
    @pytest.mark.parametrize(
        "pattern",
        [
            "(",
            "*",
            r"\Qa\E",
            "[[:alpha:]]",
            "(a+)+b",
            "(a|a)*b",
            "((a*)b*)*c",
            "a*b*c*d*e*f",
            "x" * 2000,
            r"(?R)",
        ],
    )
    def test_that_cannot_be_tried_says_so(self, pattern: str) -> None:
        with pytest.raises(UndecidedPattern):
            matcher(pattern)

    @pytest.mark.parametrize(
        ("pattern", "name", "found"),
        [
            ("^amq\\.", "amq.gen", True),
            ("^(?!amq\\.).*", "amq.gen", False),
            ("^(a|b)\\.[0-9]{2,}$", "b.123", True),
            ("(retry|dlq)$", "q.dlq", True),
            ("ü", "grün", True),
            ("^.{5}$", "grün", True),  # bytes, as the broker counts
            ("^.*$", "a\nb", False),
        ],
    )
    def test_is_read_as_the_broker_reads_it(self, pattern: str, name: str, found: bool) -> None:
        assert matcher(pattern)(name) is found


class TestTarget:
    def test_is_read_from_a_version(self) -> None:
        assert Target.parse("3.10.8") == Target(3, 10)
        assert str(Target.parse("4.3")) == "4.3"
        for text in ("", "four", "3.9"):
            with pytest.raises(ValueError, match="RabbitMQ"):
                Target.parse(text)

    @pytest.mark.parametrize(
        ("version", "target"),
        [
            ("3.6.5", "3.10"),
            ("3.12.0", "3.10"),
            ("3.13.7", "3.13"),
            ("4.1.0", "4.0"),
            ("4.9", "4.3"),
            (None, "4.3"),
        ],
    )
    def test_is_the_newest_that_is_not_newer(self, version: str | None, target: str) -> None:
        assert str(Target.nearest(version)) == target
