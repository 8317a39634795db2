"""What a third party says in Retry-After, and may say wrongly."""

from __future__ import annotations

import pytest

from workers.retry_after import DEFAULT_S, LONGEST_S, retry_after_s


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("1e300", LONGEST_S),
        ("nan", DEFAULT_S),
        ("inf", DEFAULT_S),
        ("-inf", DEFAULT_S),
        ("soon", DEFAULT_S),
        ("", DEFAULT_S),
        (None, DEFAULT_S),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2915 07:28:00 GMT", LONGEST_S),
        ("Wed, 21 Oct 2015 07:28:00 -0000", DEFAULT_S),
    ],
)
def test_the_delay_is_a_number_of_seconds_whatever_the_header_says(
    value: str | None, expected: float
) -> None:
    assert retry_after_s(value) == expected
