"""How far replays have come, in numbers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.errors import translate
from storage.pool import AnyConnection
from storage.times import shown_time

# What `rate_now` goes by.
WINDOW_S = 10.0

# A plan that was cancelled still sends what it had begun.
_RECENT = """
SELECT id::text, state, requested_by, created_at, finished_at, rate FROM redrive.replays
WHERE finished_at IS NULL OR finished_at > now() - interval '1 minute'
ORDER BY created_at DESC LIMIT 100
"""
_FIGURES = """
SELECT i.replay_id::text AS id, i.state, i.outcome, count(*) AS letters,
       count(*) FILTER (WHERE i.state = 'published' AND i.generation IS NULL
           AND i.outcome IS NULL) AS traceless,
       count(*) FILTER (WHERE i.decided_at IS NULL) AS undecided,
       count(*) FILTER (WHERE i.state IN ('failed', 'unknown', 'cancelled')
           OR i.outcome IN ('died_again', 'cancelled')
           OR (i.outcome = 'unknown' AND i.generation IS NOT NULL)) AS gone_wrong,
       count(*) FILTER (WHERE i.published_at > now() - make_interval(secs => $2)) AS lately,
       extract(epoch FROM now() - min(i.published_at))::float8 AS since_first_s
FROM redrive.replay_items i WHERE i.replay_id = ANY($1::uuid[])
GROUP BY i.replay_id, i.state, i.outcome ORDER BY i.replay_id, i.state, i.outcome
"""


@dataclass(frozen=True)
class Figures:
    """Letters of a plan, by state and by outcome.

    `undecided`: of which it is not known yet what became of them. `traceless`: of these, sent, and not jobs:
    nothing on record will tell their outcome, unless they die again. `gone_wrong`: not sent after all, died
    again, or jobs that nobody knows of any more.
    `rate_now`: letters sent per second in the last ten seconds.
    """

    states: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    undecided: int = 0
    traceless: int = 0
    gone_wrong: int = 0
    rate_now: float = 0.0

    @property
    def letters(self) -> int:
        return sum(self.states.values())

    @property
    def unsent(self) -> int:
        return self.states.get("staged", 0) + self.states.get("publishing", 0)

    @property
    def sent(self) -> int:
        return self.states.get("published", 0) + self.states.get("unknown", 0)

    def eta_s(self, rate: float | None) -> float | None:
        """Seconds until all are sent, going by the last ten seconds, or by the plan's rate before that."""
        if not self.unsent:
            return 0.0
        speed = self.rate_now or rate
        left = self.unsent / speed if speed else math.inf
        return round(left, 1) if math.isfinite(left) else None


NOTHING = Figures()


async def figures(connection: AnyConnection, replay_ids: Sequence[str]) -> dict[str, Figures]:
    """Of these plans, by id. To be called inside `translate`."""
    states: dict[str, dict[str, int]] = {}
    outcomes: dict[str, dict[str, int]] = {}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    window: dict[str, float] = {}
    for row in await connection.fetch(_FIGURES, replay_ids, WINDOW_S):
        id_ = row["id"]
        by_state, by_outcome = states.setdefault(id_, {}), outcomes.setdefault(id_, {})
        by_state[row["state"]] = by_state.get(row["state"], 0) + row["letters"]
        if row["outcome"] is not None:
            by_outcome[row["outcome"]] = by_outcome.get(row["outcome"], 0) + row["letters"]
        counts[id_].update({name: row[name] for name in ("undecided", "traceless", "gone_wrong", "lately")})
        window[id_] = max(window.get(id_, 0.0), row["since_first_s"] or 0.0)
    return {
        id_: Figures(
            by_state,
            outcomes[id_],
            counts[id_]["undecided"],
            counts[id_]["traceless"],
            counts[id_]["gone_wrong"],
            round(counts[id_]["lately"] / max(min(window[id_], WINDOW_S), 1.0), 2),
        )
        for id_, by_state in states.items()
    }


async def progress(connection: AnyConnection) -> dict[str, dict[str, Any]]:
    """Replays that run or ended within the last minute, by id: letters in all, by state and by outcome.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("look how far replays are"):
        rows = await connection.fetch(_RECENT)
        found = await figures(connection, [row["id"] for row in rows])
    shown: dict[str, dict[str, Any]] = {}
    for row in reversed(rows):
        numbers = found.get(row["id"], NOTHING)
        shown[row["id"]] = {
            "id": row["id"],
            "state": row["state"],
            "requested_by": row["requested_by"],
            "created_at": shown_time(row["created_at"]),
            "finished_at": shown_time(row["finished_at"]),
            "letters": numbers.letters,
            "states": dict(numbers.states),
            "outcomes": dict(numbers.outcomes),
            "rate_now": numbers.rate_now,
            "eta_s": numbers.eta_s(row["rate"]) if row["state"] == "running" else None,
        }
    return shown
