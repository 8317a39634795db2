"""Submissions come steadily while the broker is away: answered as before, and published oldest first.

The outage is short; set REDRIVE_TEST_OUTAGE_S=60 for a whole minute. `pytest -s` shows the latencies.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import pytest

from tests.chaos.test_api_outages import orders, outbox, readiness, submit
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.steady import Sent, Steady, percentile
from tests.support.waiting import eventually

OUTAGE_S = float(os.environ.get("REDRIVE_TEST_OUTAGE_S", "3"))
PER_S = 20
AROUND_S = 1.5
# That none waits for the broker is seen while it is away; this is for the half of them.
SLOWER, SLACK_S = 10, 1.0


@pytest.mark.timeout(600)
def test_while_the_broker_is_away_submissions_are_answered_as_before_and_published_oldest_first(
    stack: Stack, proxy: Callable[..., TcpProxy]
) -> None:
    stack.apply_topology()
    broker = proxy(stack.vhost.amqp_url)
    stack.start_api(REDRIVE_AMQP_URL=broker.url, REDRIVE_API_PUBLISH_TIMEOUT_S="120")
    load = Steady(lambda number: submit(stack, f"k{number:06}"), PER_S)
    with load.running():
        come(load, AROUND_S)
        eventually(lambda: readiness(stack)[1]["broker"] == "ok", 20, "the API has the broker")
        load.phase = "away"
        broker.refuse()
        come(load, OUTAGE_S)
        begun = load.number
        eventually(lambda: load.is_answered(begun), 60, "all are answered while the broker is away")
        eventually(lambda: readiness(stack)[1]["broker"] == "away", 10, "it is away")
        assert outbox(stack) >= OUTAGE_S * PER_S, "what was accepted meanwhile waits"
        load.phase = "back"
        broker.resume()
        come(load, AROUND_S)
        eventually(lambda: readiness(stack)[1]["broker"] == "ok", 60, "the API has found the broker")
    sent = load.sent
    assert {each.status for each in sent} == {202}
    published = orders(stack)
    assert sorted(set(published)) == [f"k{each.number:06}" for each in sent]
    oldest_first(sent, published)
    tell(sent)
    before, away = (
        percentile([each.latency_s for each in sent if each.phase == phase], 0.5)
        for phase in ("before", "away")
    )
    assert away < SLACK_S + SLOWER * before


def come(load: Steady, seconds: float) -> None:
    """So many seconds of submissions more."""
    until = load.number + math.ceil(seconds * PER_S)
    eventually(lambda: load.number >= until, seconds + 30, f"{until} submissions")


def oldest_first(sent: Sequence[Sent], published: Sequence[str]) -> None:
    """No job was published after one that was submitted when it had been answered already.

    What a lost confirm had published again counts where it came first.
    """
    answered_later = math.inf
    for key in reversed(list(dict.fromkeys(published))):
        each = sent[int(key[1:])]
        assert each.sent_at < answered_later, f"{key} came before one that is older"
        answered_later = min(answered_later, each.answered_at)


def tell(sent: Sequence[Sent]) -> None:
    for phase in ("before", "away", "back"):
        took = [each.latency_s * 1_000 for each in sent if each.phase == phase]
        told = ", ".join(f"p{part * 100:g} {percentile(took, part):.1f} ms" for part in (0.5, 0.95, 0.99))
        print(f"{phase}: {len(took)} submissions, {told}, longest {max(took):.1f} ms")
