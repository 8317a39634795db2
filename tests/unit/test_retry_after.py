"""What a third party says in Retry-After, and may say wrongly."""

from __future__ import annotations

import pytest

from workers.jobs.thirdparty import DEFAULT_RETRY_AFTER_S, LONGEST_RETRY_AFTER_S, retry_after_s


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("1e300", LONGEST_RETRY_AFTER_S),
        ("nan", DEFAULT_RETRY_AFTER_S),
        ("inf", DEFAULT_RETRY_AFTER_S),
        ("-inf", DEFAULT_RETRY_AFTER_S),
        ("soon", DEFAULT_RETRY_AFTER_S),
        ("", DEFAULT_RETRY_AFTER_S),
        (None, DEFAULT_RETRY_AFTER_S),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 2915 07:28:00 GMT", LONGEST_RETRY_AFTER_S),
        ("Wed, 21 Oct 2015 07:28:00 -0000", DEFAULT_RETRY_AFTER_S),
    ],
)
def test_the_delay_is_a_number_of_seconds_whatever_the_header_says(
    value: str | None, expected: float
) -> None:
    assert retry_after_s(value) == expected
