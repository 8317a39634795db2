"""Dead letters: an example of each answer, and the operations."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from api.openapi import story
from api.openapi.jobs import DIED, event
from api.openapi.letter_models import (
    DiscardedLetters,
    EditDryRun,
    FoundLetters,
    Letter,
    LetterDossier,
    LetterList,
    LetterStats,
    RestoredLetters,
)
from api.openapi.operation import EVENTS, Answer, Body, Operation, one
from api.openapi.replays import PROGRESS, ReplayProgress
from storage.letter_line import GroupLine

_BODY = json.dumps([[], story.PAYLOAD, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
_HEADERS = {"lang": "py", "task": story.TASK, "id": story.JOB, "retries": 0, "redrive-attempt": "1.1"}
_DEATH = {
    "queue": story.QUEUE, "reason": "rejected", "exchange": "", "routing_keys": [story.QUEUE], "count": 1,
    "time": story.DEAD_AT, "words": "rejected by its consumer in payments",
}  # fmt: skip
LETTER: dict[str, Any] = {
    "id": story.LETTER, "queue": story.QUEUE, "dead_letter_queue": "payments.dlq", "reason": "exception",
    "detail": None, "state": "open", "message_id": story.JOB, "job_id": story.JOB, "task": story.TASK,
    "exception_type": story.EXCEPTION, "group": story.GROUP,
    "body_sha256": hashlib.sha256(_BODY.encode()).hexdigest(), "body_size": len(_BODY),
    "possible_duplicate": False, "duplicate_of": None, "dead_at": story.DEAD_AT, "stored_at": story.STORED,
    "deaths": [_DEATH], "headers": _HEADERS, "attempts": [DIED], "replays": [],
}  # fmt: skip
GROUP: dict[str, Any] = {
    "fingerprint": story.GROUP, "queue": story.QUEUE, "task": story.TASK, "reason": "exception",
    "exception_type": story.EXCEPTION, "top_frame": "jobs/thirdparty.py:_request", "letters": 1,
    "first_seen": story.STORED, "last_seen": story.STORED,
}  # fmt: skip
_DEAD_JOB = {"state": "DEAD", "generation": 1, "attempt": 1, "reason": "exception"}
_OPEN: dict[str, Any] = LETTER | {
    "edit": None, "vhost": "/", "target": story.QUEUE, "exchange": "payments.dlx", "routing_key": story.QUEUE,
    "properties": {"content_type": "application/json", "content_encoding": "utf-8", "delivery_mode": 2,
                   "correlation_id": story.JOB, "message_id": story.JOB},
    "header_types": [["lang", "string"], ["task", "string"], ["id", "string"], ["retries", "int32"],
                     ["redrive-attempt", "string"]],
    "body": {"json": json.loads(_BODY)}, "group_details": GROUP, "job": _DEAD_JOB, "replay_of": None,
    "imported_from": None, "redacted": [], "history": [],
}  # fmt: skip
_REPLAY = {
    "token": story.TOKEN, "replay_id": story.REPLAY, "target": story.QUEUE, "state": "published",
    "outcome": "succeeded", "detail": None, "next_letter_id": None, "requested_by": story.OPERATOR,
    "created_at": story.REPLAYED, "published_at": story.SENT, "decided_at": story.DECIDED,
}  # fmt: skip
_REPLAYED = _OPEN | {
    "state": "replayed", "replays": [_REPLAY | {"edit": None}],
    "job": {"state": "SUCCEEDED", "generation": 2, "attempt": 1, "reason": None},
}  # fmt: skip


def _step(action: str, clock: str, **details: Any) -> dict[str, Any]:
    return {"action": action, "by": story.OPERATOR, "at": story.at(clock)} | details


_DISCARD = _step("discard", "12:10:00.201744", was="open", why="the old client sent XML")
_RESTORE = _step("restore", "12:11:00.870215", state="open", why="needed after all")
_MODEL = f"the model of {story.TASK}"
_CHANGES = [{"op": "replace", "path": "/kwargs/amount_cents", "value": 500}]
_EDITED_ID = "7e6d5c4b-3a29-4180-9f7e-6d5c4b3a2918"
_EDITED_BODY = _BODY.replace("1999", "500")
_EDIT = _step(
    "edit", "12:12:00.114908", edit=1, message_id=_EDITED_ID, changes=_CHANGES, checked=_MODEL, why="a typo"
)
_WITHDRAW = _step("withdraw", "12:13:00.662190", edit=1, why="it was right as it came")
_EDITED = _OPEN | {
    "edit": {
        "id": 1, "message_id": _EDITED_ID, "body_sha256": hashlib.sha256(_EDITED_BODY.encode()).hexdigest(),
        "body_size": len(_EDITED_BODY), "headers": _HEADERS,
        "properties": _OPEN["properties"] | {"message_id": _EDITED_ID},
        "body": {"json": json.loads(_EDITED_BODY)},
    },
    "history": [_EDIT],
}  # fmt: skip
_STATS = {
    "letters": 1, "states": {"open": 1}, "queues": {story.QUEUE: {"open": 1}},
    "reasons": {"exception": {"open": 1}},
    "groups": [{"group": story.GROUP, "queue": story.QUEUE, "task": story.TASK, "reason": "exception",
                "exception_type": story.EXCEPTION, "last_seen": story.STORED, "undecided": 1}],
    "hours": [{"hour": story.at("11:00:00"), "letters": 0}, {"hour": story.at("12:00:00"), "letters": 1}],
    "oldest_undecided": {"id": story.LETTER, "dead_at": story.DEAD_AT, "age_s": 204.5},
    "newest": {"id": story.LETTER, "dead_at": story.DEAD_AT, "stored_at": story.STORED},
}  # fmt: skip
# The property list of a message with nothing but a content type.
_PROPERTIES = b"\x80\x00\x10application/json"
_ORIGIN = {"id": story.LETTER, "stored_at": story.STORED, "identity": hashlib.sha256(b"o-1").hexdigest()}
EXPORTED = LETTER | {
    "format": 1, "target": story.QUEUE, "exchange": "payments.dlx", "routing_key": story.QUEUE,
    "generation": 1, "attempt": 1, "replay_token": None, "properties": {"content_type": "application/json"},
    "header_types": [], "headers": {}, "deaths": [], "origin": _ORIGIN, "copy_of": None, "has_identity": True,
    "group_details": {name: GROUP[name] for name in GROUP if name in GroupLine.model_fields} | {"rule": 1},
    "redacted": [], "history": [], "job": _DEAD_JOB,
    "raw": {
        "properties": base64.b64encode(_PROPERTIES).decode(),
        "properties_sha256": hashlib.sha256(_PROPERTIES).hexdigest(),
        "body_sha256": LETTER["body_sha256"], "body": base64.b64encode(_BODY.encode()).decode(),
    },
    "edit": None,
}  # fmt: skip
_FILE = Body(None, json.dumps(EXPORTED) + "\n", "application/x-ndjson")
_TOLD = f"retry: 2000\nid: 16\n\nid: 17\n{event('letter', LETTER)}{event('replay', PROGRESS)}"
_STREAM = Body(None, _TOLD, EVENTS, events={"letter": Letter, "replay": ReplayProgress})
_FOUND = Body(FoundLetters, {"letters": 12, "left_out": {"discarded already": 3}}, name="dry run")
_OF_ONE = ("unknown-letter", "letter-not-allowed")
_OF_SEVERAL = ("letters-not-allowed", "changed", "unknown-letters", "too-many-at-once")
OPERATIONS = {
    "GET /dead-letters": Operation(
        "list_dead_letters", one(LetterList, {"letters": [LETTER], "next_cursor": None}, "A page of letters.")
    ),
    "GET /dead-letters/stats": Operation("get_dead_letter_stats", one(LetterStats, _STATS, "The numbers.")),
    "GET /dead-letters/export": Operation(
        "export_dead_letters",
        (Answer(200, "A letter a line, as `dlq import` reads it.", (_FILE,), ("Content-Disposition",)),),
        ("too-many-open", "too-many-exports"),
    ),
    "GET /dead-letters/{letter_id}": Operation(
        "get_dead_letter", one(LetterDossier, _REPLAYED, "The letter's dossier."), ("unknown-letter",)
    ),
    "POST /dead-letters/{letter_id}/discard": Operation(
        "discard_dead_letter",
        one(LetterDossier, _OPEN | {"state": "discarded", "history": [_DISCARD]}, "The discarded letter."),
        _OF_ONE,
    ),
    "POST /dead-letters/{letter_id}/restore": Operation(
        "restore_dead_letter",
        one(LetterDossier, _OPEN | {"history": [_DISCARD, _RESTORE]}, "The letter, as it was before."),
        _OF_ONE,
    ),
    "POST /dead-letters/{letter_id}/edit": Operation(
        "edit_dead_letter",
        (Answer(200, "The edited letter; with `dry_run` what would be changed.", (
            Body(LetterDossier, _EDITED, name="edited"),
            Body(EditDryRun, {"letter": story.LETTER, "changes": _CHANGES, "checked": _MODEL},
                 name="dry run"))),),
        _OF_ONE,
    ),
    "POST /dead-letters/{letter_id}/withdraw": Operation(
        "withdraw_dead_letter_edit",
        one(LetterDossier, _OPEN | {"history": [_EDIT, _WITHDRAW]}, "The letter, without its edit."),
        _OF_ONE,
    ),
    "POST /dead-letters/discard": Operation(
        "discard_dead_letters",
        (Answer(200, "How many were discarded; with `dry_run` how many would be.",
                (Body(DiscardedLetters, {"discarded": 12}, name="done"), _FOUND)),),
        _OF_SEVERAL,
    ),
    "POST /dead-letters/restore": Operation(
        "restore_dead_letters",
        (Answer(200, "How many were restored; with `dry_run` how many would be.",
                (Body(RestoredLetters, {"restored": 2}, name="done"), _FOUND)),),
        _OF_SEVERAL,
    ),
    "GET /stream": Operation(
        "watch_dead_letters",
        (Answer(200, "Events, for 15 minutes at most.", (_STREAM,)),),
        ("too-many-open", "too-many-streams"),
    ),
}  # fmt: skip
