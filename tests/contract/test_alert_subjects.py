"""What is on record about alerts: resolved when it is, told once by many, left to the release before."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from storage import alert_subjects, alerts, figures, letter_stats
from storage.alert_list import AlertFilter, newest
from storage.alert_rules import AlertPolicy, Route
from storage.alert_snoozes import UnknownSubjectError, snooze
from storage.alert_subjects import Condition
from storage.alerts import NewAlert, raise_alerts
from storage.pool import Pool
from storage.times import read_time
from tests.support.databases import Database

pytestmark = [pytest.mark.anyio, pytest.mark.integration]
GROUP = "ab" * 16
POLICY = AlertPolicy(3600, routes=(Route("webhook"), Route("sentry", resolved=False)))
WRONG = Condition("no_consumer://v/q", "no_consumer", wrong=True, detail="nobody drains q")
WELL = Condition("no_consumer://v/q", "no_consumer", wrong=False)


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    async with asyncpg.create_pool(database.url, min_size=1, max_size=4) as made:
        yield made


async def a_group(pool: Pool, *, quiet_h: float = 2, state: str = "open") -> None:
    """A group that has alerted, with one letter."""
    await pool.execute(
        "insert into redrive.drain_sessions (cluster, vhost, queue, consumer) values ('c', '/', 'q.dlq', 't')"
    )
    await pool.execute(
        "insert into redrive.groups (fingerprint, queue, reason, letters) values ($1, 'q', 'rejected', 1)",
        GROUP,
    )
    await pool.execute(
        "insert into redrive.dead_letters (session_id, dlq, queue, reason, state, properties, body, exchange,"
        " routing_key, body_sha256, body_size, identity, has_identity, fingerprint) values"
        " (1, 'q.dlq', 'q', 'rejected', $2, '', '', '', '', '', 0, 'i', true, $1)",
        GROUP,
        state,
    )
    await pool.execute(
        "insert into redrive.alert_subjects (subject, fingerprint, alerted_at, last_letter)"
        " values ($1, $1, now() - interval '3 hours', now() - make_interval(secs => $2))",
        GROUP,
        quiet_h * 3600,
    )


async def told(pool: Pool) -> list[tuple[str, str]]:
    return [(row.kind, row.state) for row in reversed(await newest(pool, AlertFilter(), limit=100))]


@pytest.mark.parametrize(
    ("quiet_h", "state", "well"),
    [
        (2, "discarded", True),
        (2, "replayed", True),
        (0.5, "discarded", False),
        (2, "open", False),
        (2, "replaying", False),
        (2, "quarantined", False),
    ],
)
async def test_a_group_is_well_again_when_it_is_quiet_and_decided(
    pool: Pool, quiet_h: float, state: str, well: bool
) -> None:
    await a_group(pool, quiet_h=quiet_h, state=state)
    for _ in range(2):
        await alert_subjects.resolve_groups(pool, POLICY)
    assert await told(pool) == ([("resolved", "sending")] if well else [])


async def test_a_replay_of_unknown_outcome_is_no_decision(pool: Pool) -> None:
    await a_group(pool, state="replayed")
    await pool.execute("insert into redrive.replays (requested_by) values ('t')")
    await pool.execute(
        "insert into redrive.replay_items (token, replay_id, position, letter_id, target, state, outcome,"
        " decided_at) select 't', r.id, 1, l.id, 'q', 'published', 'unknown', now()"
        " from redrive.replays r, redrive.dead_letters l"
    )
    assert await alert_subjects.resolve_groups(pool, POLICY) == 0
    letter = await pool.fetchval("select id from redrive.dead_letters")
    assert await oldest(pool) == (letter, letter, True)
    await pool.execute("insert into redrive.replays (requested_by) values ('forced')")
    await pool.execute(
        "insert into redrive.replay_items (token, replay_id, position, letter_id, target, state, outcome,"
        " decided_at) select 'u', r.id, 1, $1, 'q', 'published', 'consumed', now() + interval '1 s'"
        " from redrive.replays r where r.requested_by = 'forced'",
        letter,
    )
    assert await oldest(pool) == (None, None, False)
    assert await alert_subjects.resolve_groups(pool, POLICY) == 1
    await pool.execute("delete from redrive.replay_items where token = 'u'")
    assert await oldest(pool) == (letter, letter, True)
    await pool.execute("update redrive.replay_items set outcome = 'succeeded'")
    assert await oldest(pool) == (None, None, False)


async def oldest(pool: Pool) -> tuple[int | None, int | None, bool]:
    """The oldest undecided letter of alerts and of `dlq stats`, and whether the metrics have one."""
    alert = await alert_subjects.oldest_undecided(pool, 60.0)
    shown = (await letter_stats.stats(pool))["oldest_undecided"]
    age = await pool.fetchval(figures.UNDECIDED)
    return None if alert is None else alert.letter_id, shown and shown["id"], age is not None


async def test_an_ignored_group_is_not_told_of(pool: Pool) -> None:
    await a_group(pool, state="discarded")
    await pool.execute("insert into redrive.group_states (fingerprint, state) values ($1, 'ignored')", GROUP)
    assert await alert_subjects.resolve_groups(pool, POLICY) == 0


async def test_what_is_wrong_is_told_once_by_however_many_look_and_again_when_it_is_wrong_again(
    pool: Pool,
) -> None:
    for condition in (WELL, WRONG, WRONG, WELL, WELL, WRONG):
        await alert_subjects.report(pool, [condition], POLICY)
    assert [kind for kind, _ in await told(pool)] == ["no_consumer", "resolved", "no_consumer"]


async def test_what_is_still_wrong_after_a_snooze_is_told_of_then(pool: Pool) -> None:
    await alert_subjects.report(pool, [WRONG], POLICY)
    await alert_subjects.report(pool, [WELL], POLICY)
    later = read_time("2099-01-01", read_time("2026-01-01", None))  # type: ignore[arg-type]
    await snooze(pool, WRONG.subject, later, by="ada")
    await alert_subjects.report(pool, [WRONG], POLICY)
    await alert_subjects.report(pool, [WRONG], POLICY)
    assert (await told(pool))[2:] == [("no_consumer", "snoozed")]
    await snooze(pool, WRONG.subject, None, by="ada")
    await alert_subjects.report(pool, [WRONG], POLICY)
    await alert_subjects.report(pool, [WRONG], POLICY)
    assert (await told(pool))[3:] == [("no_consumer", "sending")]


async def test_a_snooze_holds_back_what_waits_for_another_try(pool: Pool) -> None:
    await a_group(pool)
    async with pool.acquire() as connection:
        await raise_alerts(connection, [NewAlert(GROUP, "seen_again")], POLICY)
    await snooze(pool, GROUP[:4], read_time("2099-01-01", read_time("2026-01-01", None)), by="ada")  # type: ignore[arg-type]
    assert await told(pool) == [("seen_again", "snoozed")]
    assert await alerts.claim_due(pool, "webhook", limit=10, lease_s=30) == []


async def test_what_never_alerted_cannot_be_snoozed(pool: Pool) -> None:
    with pytest.raises(UnknownSubjectError, match="never alerted"):
        await snooze(pool, "no_consumer://v/q", None, by="ada")


async def test_each_channel_is_settled_by_itself_and_the_alert_with_the_last(pool: Pool) -> None:
    await a_group(pool)
    async with pool.acquire() as connection:
        await raise_alerts(connection, [NewAlert(GROUP, "seen_again")], POLICY)
    (alert,) = await alerts.claim_due(pool, "webhook", limit=10, lease_s=30)
    assert await alerts.claim_due(pool, "webhook", limit=10, lease_s=30) == []
    await alerts.delivered(pool, alert.id, "webhook")
    assert await told(pool) == [("seen_again", "sending")]
    (same,) = await alerts.claim_due(pool, "sentry", limit=10, lease_s=30)
    assert (same.id, same.queue, same.tries) == (alert.id, "q", 1)
    await alerts.failed(pool, alert.id, "sentry", "no", retry_in_s=0, give_up=True)
    assert await told(pool) == [("seen_again", "given_up")]


async def test_what_the_release_before_left_is_taken_over_once_its_claim_has_run_out(pool: Pool) -> None:
    await a_group(pool)
    for wait in (-1, 60):
        await pool.execute(
            "insert into redrive.alerts (fingerprint, kind, letter_id, next_try_at)"
            " values ($1, 'first_seen', 1, now() + make_interval(secs => $2))",
            GROUP,
            wait,
        )
    await alerts.adopt(pool, POLICY)
    assert sorted(await told(pool)) == [("first_seen", "pending"), ("first_seen", "sending")]
    (alert,) = await alerts.claim_due(pool, "webhook", limit=10, lease_s=30)
    assert (alert.subject, alert.fingerprint) == (GROUP, GROUP)


async def test_what_waits_for_a_channel_that_is_gone_is_given_up_after_days(pool: Pool) -> None:
    await a_group(pool)
    async with pool.acquire() as connection:
        await raise_alerts(connection, [NewAlert(GROUP, "seen_again")], POLICY)
    await alerts.forget(pool, ["webhook"])
    assert await told(pool) == [("seen_again", "sending")]
    await pool.execute("update redrive.alert_deliveries set created_at = now() - interval '3 days'")
    await alerts.forget(pool, ["webhook"])
    rows = await pool.fetch("select channel, state from redrive.alert_deliveries order by channel")
    assert [tuple(row.values()) for row in rows] == [("sentry", "given_up"), ("webhook", "pending")]
