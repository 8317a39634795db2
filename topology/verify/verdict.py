"""From a probe's arrival, or its absence, to what is said of its path. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topology.channel import QueueState
from topology.names import UNROUTED_DLQ
from topology.probe import Arrival
from topology.verify.check import APPLY, Check, failed, not_probed, ok
from topology.verify.legs import Leg
from topology.verify.live import Live

# A TTL of the broker's is to the millisecond.
EARLY_S = 0.005
# The promise on retries: at most so much late.
LATE_SHARE, LATE_S = 0.1, 1.0
# Where nothing lets a probe overtake, more jobs than this before it are not waited for.
MOST_BEFORE = 100
OVERTAKING_RELEASE = (4, 0)


@dataclass(frozen=True)
class Evidence:
    """What was found before anything was sent. `broken` and `suspects` are failed checks by entity name."""

    live: Live
    broken: Mapping[str, Sequence[Check]]
    suspects: Mapping[str, Sequence[Check]]
    overtaken: frozenset[str]  # queues in which a probe's priority counts
    wait_s: float


@dataclass(frozen=True)
class Blame:
    """The failed checks of what a probe goes through, in words."""

    reason: str
    fix: str


def before(leg: Leg, counts: Mapping[str, QueueState], evidence: Evidence) -> Check | None:
    """Why a probe is not to be sent on this leg, or None."""
    if (blame := _blame(leg.needs, evidence.broken)) is not None:
        return failed(leg.path, leg.queue, f"no probe sent: {blame.reason}", blame.fix)
    if evidence.live.alarms:
        alarms = "; ".join(evidence.live.alarms)
        return not_probed(leg.path, leg.queue, f"the broker takes no messages: {alarms}")
    if leg.delay_s > evidence.wait_s:
        why = f"its delay of {leg.delay_s:g} s is over --wait {evidence.wait_s:g}"
        return not_probed(leg.path, leg.queue, why)
    # Whatever has lost its way is to be drained too.
    for name in () if leg.ends_in is None else (leg.ends_in, UNROUTED_DLQ):
        if not counts[name].consumers:
            why = f"no consumer drains {name}, so the probe would stay there"
            return not_probed(leg.path, leg.queue, why, "Run: dlq consume")
        if (several := counts[name].consumers) > 1:
            why = (
                f"no probe sent: {several} consumers take letters from {name}, and only one is `dlq consume`"
            )
            fix = "Find the others in the management UI under the queue's consumers, and stop them"
            return failed(leg.path, leg.queue, why, fix)
    if leg.consumed is not None:
        state = counts[leg.consumed]
        if not state.consumers:
            why = f"no worker consumes {leg.consumed}, so the probe would stay there"
            return not_probed(leg.path, leg.queue, why)
        if state.messages > MOST_BEFORE and leg.consumed not in evidence.overtaken:
            why = f"{state.messages:,} jobs wait in {leg.consumed}, and a probe would wait behind them"
            return not_probed(leg.path, leg.queue, why)
    return None


def arrived(leg: Leg, arrival: Arrival, seconds: float, evidence: Evidence) -> Check:
    """What an arrival says of its leg. `seconds` counts from before it was sent."""

    def wrong(reason: str, fix: str) -> Check:
        return failed(leg.path, leg.queue, reason, fix, seconds=seconds)

    blame = _blame(leg.touches, evidence.suspects)
    if arrival.queue != (leg.ends_in or ""):
        where = arrival.queue or "the ladder's end"
        why = blame.reason if blame else "no binding on its way took its key"
        return wrong(f"the probe came out in {where}: {why}", blame.fix if blame else APPLY)
    died_in = arrival.deaths[0][0] if arrival.deaths else None
    if leg.died_in is not None and died_in != leg.died_in:
        why = f"the probe did not pass {leg.died_in}: it came from {died_in or 'no queue at all'}"
        fix = "Look for a binding that is not ours: rabbitmqctl list_bindings"
    elif seconds < leg.delay_s - EARLY_S:
        why = f"the probe came early: {leg.delay_s:g} s were asked"
        fix = "Look at the policies and the TTL of its queue"
    elif leg.delay_s and seconds > leg.delay_s * (1 + LATE_SHARE) + LATE_S:
        why = f"the probe came late: {leg.delay_s:g} s were asked"
        fix = "Look at the broker's load"
    else:
        return ok(leg.path, leg.queue, seconds)
    return wrong(f"{why}; {blame.reason}", blame.fix) if blame else wrong(why, fix)


def absent(leg: Leg, waited_s: float, states: Mapping[str, QueueState], evidence: Evidence) -> Check:
    """What it says that no probe came within `waited_s` seconds. `states` are as of now."""
    state = states.get(leg.consumed) if leg.consumed is not None else None
    if state is not None and state.messages:
        why = (
            f"the probe still waits behind {state.messages:,} jobs of {leg.consumed} after {waited_s:.0f} s; "
            "it goes to the dead-letter queue when it is at the head"
        )
        return not_probed(leg.path, leg.queue, why)
    blame = _blame(leg.touches, evidence.suspects)
    reason = f"the probe did not come out within {waited_s:.0f} s"
    if blame is not None:
        return failed(leg.path, leg.queue, f"{reason}: {blame.reason}", blame.fix)
    if state is not None:
        fix = f"Are all consumers of {leg.consumed} workers of this release, and is `dlq consume`?"
    elif leg.ends_in is not None:
        fix = f"Is the consumer of {leg.ends_in} `dlq consume` of this release, and does it run?"
    else:
        fix = (
            "Look for dead letters that cannot leave (messages_dlx) and for consumers on the ladder's queues"
        )
    return failed(leg.path, leg.queue, reason, fix)


def latest_s(leg: Leg, patience_s: float) -> float:
    """How long after sending a probe is waited for."""
    return leg.delay_s * (1 + LATE_SHARE) + LATE_S + patience_s


def _blame(names: Sequence[str], checks: Mapping[str, Sequence[Check]]) -> Blame | None:
    found = list(dict.fromkeys(check for name in names for check in checks.get(name, ())))
    if not found:
        return None
    fixes = dict.fromkeys(check.fix for check in found)
    return Blame("; ".join(f"{check.path}: {check.reason}" for check in found), ". ".join(fixes))
