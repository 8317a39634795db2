"""How often we knock, and how often we say so."""

from __future__ import annotations

from topology.backoff import Backoff, Waiting


def test_delays_double_to_five_seconds_and_are_cut_by_half_at_most() -> None:
    backoff = Backoff()
    nominal = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    delays = [backoff.next_s() for _ in nominal]
    assert all(most / 2 <= delay <= most for delay, most in zip(delays, nominal, strict=True))
    backoff.reset()
    assert backoff.next_s() <= 0.1


def test_a_day_of_waiting_is_said_in_a_bounded_number_of_lines() -> None:
    lines: list[str] = []
    now = 0.0
    waiting = Waiting("RabbitMQ at h:1 vhost /", lines.append, lambda: now)
    for attempt in range(86_400):
        now = float(attempt)
        waiting.failed("Connection refused" if attempt % 2 else f"odd reason {attempt}")
    waiting.over()

    assert lines[:2] == [
        "waiting for RabbitMQ at h:1 vhost /: odd reason 0",
        "waiting for RabbitMQ at h:1 vhost /: Connection refused",
    ]
    assert lines[5].endswith("(60 s so far)")
    assert lines[-1] == "connected to RabbitMQ at h:1 vhost / after 86399.0 s"
    assert len(lines) < 5 + 6 + 24 + 2


def test_a_connection_at_the_first_attempt_says_nothing() -> None:
    lines: list[str] = []
    Waiting("RabbitMQ", lines.append, lambda: 0.0).over()
    assert lines == []
