"""Token buckets, by a clock that is told."""

from __future__ import annotations

from api.rate_limit import RateLimit


def test_a_full_bucket_lets_a_burst_in_and_then_as_many_as_come_back() -> None:
    limit = RateLimit()
    assert [limit.take("a", 2, 3, 10.0).allowed for _ in range(4)] == [True, True, True, False]
    refused = limit.take("a", 2, 3, 10.0)
    assert (refused.allowed, refused.wait_s) == (False, 0.5)
    assert limit.take("a", 2, 3, 10.5).allowed
    assert not limit.take("a", 2, 3, 10.9).allowed
    assert limit.take("b", 2, 3, 10.9).allowed, "each name has its own"


def test_it_never_holds_more_than_the_burst() -> None:
    limit = RateLimit()
    limit.take("a", 1, 2, 0.0)
    assert [limit.take("a", 1, 2, 1e9).allowed for _ in range(3)] == [True, True, False]


def test_what_costs_more_than_the_burst_is_let_in_once_and_leaves_a_debt() -> None:
    limit = RateLimit()
    assert limit.take("a", 10, 20, 0.0, 100).allowed
    refused = limit.take("a", 10, 20, 0.0)
    assert (refused.allowed, refused.wait_s) == (False, 8.1)
    assert not limit.take("a", 10, 20, 8.0).allowed
    assert limit.take("a", 10, 20, 8.2).allowed


def test_the_headers_tell_what_is_left_and_how_long_to_wait() -> None:
    limit = RateLimit()
    assert limit.take("a", 0.5, 2, 0.0).headers == {
        "RateLimit-Policy": '"requests";q=2;w=4', "RateLimit": '"requests";r=1;t=2',
    }  # fmt: skip
    limit.take("a", 0.5, 2, 0.0)
    refused = limit.take("a", 0.5, 2, 0.5)
    assert refused.headers["RateLimit"] == '"requests";r=0;t=4'
    assert refused.headers["Retry-After"] == "2"


def test_what_is_given_back_may_be_taken_again() -> None:
    limit = RateLimit()
    limit.take("a", 1, 1, 0.0)
    limit.give_back("a")
    assert limit.take("a", 1, 1, 0.0).allowed


def test_it_forgets_who_was_away_longest_and_stays_small() -> None:
    limit = RateLimit(most=3)
    for name in "abcd":
        limit.take(name, 1, 1, 0.0)
    assert len(limit) == 3
    assert not limit.take("d", 1, 1, 0.0).allowed
    assert limit.take("a", 1, 1, 0.0).allowed


def test_a_rate_next_to_nothing_is_told_in_numbers_that_a_header_may_have() -> None:
    limit = RateLimit()
    for rate in (1e-300, 5e-324):
        refused = [limit.take(f"{rate}", rate, 3, 0.0) for _ in range(4)][-1]
        assert refused.headers == {
            "RateLimit-Policy": '"requests";q=3;w=1000000000', "RateLimit": '"requests";r=0;t=1000000000',
            "Retry-After": "1000000000",
        }  # fmt: skip
