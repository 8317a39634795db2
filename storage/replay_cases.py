"""The rule by which letters can be sent again, as SQL over a letter `l` and its job `j`."""

from __future__ import annotations

from storage import letter_edits
from storage.letter_edits import redacted
from storage.letter_filter import UNTOLD, LetterFilter, Parameters, where
from storage.pool import AnyConnection
from storage.replay_fitness import Choice, Fitness
from storage.schema import has_table

LAPS = "replay_laps"
# staged, publishing, or published without an outcome: a constraint holds that these are the same.
OUTSTANDING = "i.decided_at IS NULL"


def chosen(choice: Choice, values: Parameters) -> str:
    if isinstance(choice, LetterFilter):
        return where(choice, values)
    return f"l.id = ANY({values.add(list(choice))}::bigint[])"


async def judged(
    connection: AnyConnection, choice: Choice, fitness: Fitness, values: Parameters, columns: str = ""
) -> str:
    """A SELECT of `id`, `why` (null where it is fit, else a pair of kind and what it is about), `columns`."""
    which = chosen(choice, values)
    sent = await letter_edits.sent_columns(connection)
    cases = await _cases(connection, choice, fitness, values, sent.body_size)
    more = f", {columns}" if columns else ""
    return (
        f"SELECT l.id, CASE {cases} END AS why{more} FROM redrive.dead_letters l"  # noqa: S608
        f" LEFT JOIN redrive.jobs j ON j.id = l.job_id{sent.join} WHERE {which}"
    )


async def _cases(
    connection: AnyConnection, choice: Choice, fitness: Fitness, values: Parameters, body_size: str
) -> str:
    """The first that holds is told. Of one job only the newest letter is sent."""
    target = "l.target" if fitness.to is None else f"{values.add(fitness.to)}::text"
    doubtful = (
        "(SELECT i.replay_id::text FROM redrive.replay_items i WHERE i.letter_id = l.id"  # noqa: S608
        f" AND {UNTOLD} ORDER BY i.decided_at DESC LIMIT 1)"
    )
    outstanding = (
        f"(SELECT i.replay_id::text FROM redrive.replay_items i WHERE i.letter_id = l.id AND {OUTSTANDING})"  # noqa: S608
    )
    same_job = (
        # `+ 0`: found by the job alone. By ids all letters chosen were read for each: 13 s for 10,000.
        "(SELECT min(n.id + 0) FROM redrive.dead_letters n WHERE n.job_id = l.job_id AND n.id + 0 > l.id"  # noqa: S608
        f" AND n.duplicate_of IS NULL AND {_may_go_too(choice, target, values)})"
    )
    found: list[tuple[str, str, str]] = [
        ("duplicate", "l.duplicate_of IS NOT NULL", "l.duplicate_of"),
        ("outstanding", f"{outstanding} IS NOT NULL", outstanding),
    ]
    if not fitness.force:
        found.append(("doubtful", f"l.state = 'replayed' AND {doubtful} IS NOT NULL", doubtful))
        found.append(("state", "l.state <> 'open'", "l.state"))
    else:
        settled = f"l.state <> 'open' AND (l.state <> 'replayed' OR {doubtful} IS NULL)"
        found.append(("state", settled, "l.state"))
    found += [
        ("homeless", f"{target} IS NULL", "NULL"),
        ("job", "j.state <> 'DEAD'", "j.state"),
        ("same_job", f"j.id IS NOT NULL AND {same_job} IS NOT NULL", same_job),
    ]
    if fitness.refused:
        names, reasons = (values.add(list(each)) for each in zip(*fitness.refused.items(), strict=True))
        why = (
            f"(SELECT r.why FROM unnest({names}::text[], {reasons}::text[]) r (name, why)"  # noqa: S608
            f" WHERE r.name = {target})"
        )
        found.append(("target", f"{why} IS NOT NULL", why))
    if fitness.job_queues is not None:
        queues = values.add(sorted(fitness.job_queues))
        found.append(("not_a_work_queue", f"j.id IS NOT NULL AND {target} <> ALL({queues}::text[])", target))
    if fitness.largest_body is not None:
        limit = values.add(fitness.largest_body)
        found.append(
            (
                "too_large",
                f"{body_size} > {limit}::bigint",
                f"'its body is over ' || {limit}::bigint || ' bytes'",
            )
        )
    if fitness.most_laps is not None and not fitness.force:
        laps = f"greatest(coalesce(j.generation - 1, 0), {await laps_of(connection)})"
        found.append(("laps", f"{laps} >= {values.add(fitness.most_laps)}::int", laps))
    found.append(("redacted", await redacted(connection), "NULL"))
    return "\n".join(
        f"WHEN {condition} THEN jsonb_build_array('{kind}', {about})" for kind, condition, about in found
    )


async def laps_of(connection: AnyConnection) -> str:
    """How often the message of a letter `l` was replayed, as far as the replays tell."""
    if not await has_table(connection, LAPS):
        return "(l.replay_token IS NOT NULL)::int"
    return (
        "CASE WHEN l.replay_token IS NULL THEN 0 ELSE 1 + coalesce((SELECT p.laps FROM redrive.replay_laps p"
        " WHERE p.token = l.replay_token), 0) END"
    )


def _may_go_too(choice: Choice, target: str, values: Parameters) -> str:
    if isinstance(choice, LetterFilter):
        return f"n.state = 'open' AND {target.replace('l.target', 'n.target')} IS NOT NULL"
    return f"n.id + 0 = ANY({values.add(list(choice))}::bigint[])"
