"""What is on record about imported letters beside their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from storage import letter_actions
from storage.letter_line import LetterLine, Step
from storage.pool import AnyConnection
from storage.text import safe_json, safe_text

_ORIGINS = """
INSERT INTO redrive.imported_letters (letter_id, old_id, stored_at, identity)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::bytea[])
"""
_EDIT = """
INSERT INTO redrive.letter_edits (letter_id, message_id, properties, body) VALUES ($1, $2, $3, $4)
RETURNING id
"""
_STEPS = """
INSERT INTO redrive.letter_actions (letter_id, action, by, at, details)
SELECT t.id, t.action, t.by, t.at, t.details::jsonb
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::timestamptz[], $5::text[])
    WITH ORDINALITY AS t (id, action, by, at, details, n) ORDER BY t.n
"""
_PLAN = """
INSERT INTO redrive.replays (state, requested_by, note, finished_at) VALUES ('done', $1, $2, now())
RETURNING id
"""
# With its own token the letter is known again should the message die again.
_DOUBT = """
INSERT INTO redrive.replay_items
    (token, replay_id, position, letter_id, target, state, outcome, detail, decided_at)
SELECT CASE WHEN EXISTS (SELECT 1 FROM redrive.replay_items i WHERE i.token = t.token)
            THEN gen_random_uuid()::text ELSE t.token END,
       $1, $2 + t.n, t.letter_id, t.target, 'unknown', 'unknown', $6, now()
FROM unnest($3::text[], $4::bigint[], $5::text[]) WITH ORDINALITY AS t (token, letter_id, target, n)
"""
_WHY = "sent, perhaps, by the database that it was imported from"
_NOTE = "imported: replays of another database of which nobody knows what came of them"


class Plan:
    """The replay under which doubtful replays of imported letters are on record: one of each run."""

    def __init__(self, by: str) -> None:
        self._by = by
        self._id: object = None
        self._items = 0

    async def add(self, connection: AnyConnection, letters: Mapping[int, LetterLine]) -> None:
        """Inside the caller's transaction."""
        rows = {
            replay.token: (id_, replay.target)
            for id_, line in letters.items()
            for replay in line.doubtful
            if line.copy_of is None
        }
        if not rows:
            return
        if self._id is None:
            self._id = await connection.fetchval(_PLAN, safe_text(self._by, 200), _NOTE)
        ids, targets = zip(*rows.values(), strict=True)
        await connection.execute(_DOUBT, self._id, self._items, list(rows), ids, targets, _WHY)
        self._items += len(rows)


async def mark(connection: AnyConnection, letters: Mapping[int, LetterLine], *, by: str, note: str) -> None:
    """Origin, redaction, the edit in force and the history of each letter, and that it was imported."""
    origins = [
        (id_, line.origin.id, line.origin.stored_at, line.origin.identity) for id_, line in letters.items()
    ]
    await connection.execute(_ORIGINS, *zip(*origins, strict=True))
    redacted = {id_: line.redacted for id_, line in letters.items() if line.redacted}
    await letter_actions.note_redacted(connection, redacted)
    edits = {}
    for id_, line in letters.items():
        if (edit := line.edit) is not None:
            values = (edit.message_id, edit.raw.properties, edit.raw.body)
            edits[id_] = await connection.fetchval(_EDIT, id_, *values)
    steps = [
        (
            id_,
            step.action,
            safe_text(step.by, letter_actions.MAX_NAME),
            step.at,
            _details(step, line, edits.get(id_)),
        )
        for id_, line in letters.items()
        for step in line.history
    ]
    if steps:
        await connection.execute(_STEPS, *zip(*steps, strict=True))
    said = {"why": note[: letter_actions.MAX_NOTE]} if note else {}
    known = [(id_, said | _known(line)) for id_, line in letters.items()]
    await letter_actions.note(connection, "import", by, known)


def _details(step: Step, line: LetterLine, edit: int | None) -> str:
    details = dict(step.model_extra or {})
    if "edit" in details:
        # Of edits that are not in force the bytes are not here.
        details["edit"] = edit if line.edit is not None and details["edit"] == line.edit.id else None
    return json.dumps(safe_json(details))


def _known(line: LetterLine) -> dict[str, Any]:
    """What the other database knew and this one has no rows for."""
    return {
        "from": {"id": line.id, "stored_at": line.stored_at.isoformat(), "state": line.state},
        "job": line.job,
        "attempts": line.attempts,
        "replays": [replay.model_dump(mode="json") for replay in line.replays],
    }
