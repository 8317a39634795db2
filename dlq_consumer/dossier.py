"""One letter for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dlq_consumer import printing

_NAMES = (
    "id", "queue", "dead_letter_queue", "vhost", "target", "reason", "detail", "state", "task", "job_id",
    "message_id", "group", "dead_at", "stored_at", "body_size", "body_sha256",
    "possible_duplicate", "duplicate_of", "replay_of", "imported_from",
)  # fmt: skip
_TOLD_ELSEWHERE = ("action", "by", "at", "attempts")
# Of bytes that are no text; `--json` has more.
MAX_HEX_BYTES = 1_024


def print_dossier(shown: Mapping[str, Any]) -> None:
    """What `Dossier.as_json` has, the questions of an operator first: what, why, tried how, sent again?"""
    pairs = [(name, shown[name]) for name in _NAMES if shown[name] is not None]
    if shown["redacted"]:
        pairs.append(("redacted", ", ".join(shown["redacted"])))
    printing.fields(pairs)
    if shown["job"]:
        printing.block("job", " ".join(f"{name}={value}" for name, value in shown["job"].items()))
    deaths = [f"{death['time'] or 'at no known time'}  {death['words']}" for death in shown["deaths"]]
    printing.block("deaths", "\n".join(deaths) or "none on record")
    for attempt in shown["attempts"]:
        printing.block(
            f"attempt {attempt['generation']}.{attempt['attempt']}: {attempt['outcome']}"
            f" ({attempt['worker']}, {attempt['started_at']})",
            attempt["traceback"] or attempt["message"] or attempt["reason"] or "",
        )
    printing.block("headers", "\n".join(_headers(shown["headers"], shown["header_types"])) or "none")
    properties = [f"{name}: {json.dumps(value)}" for name, value in shown["properties"].items()]
    printing.block("properties", "\n".join(properties) or "none")
    _body("body", shown["body"], shown["body_size"])
    if edit := shown["edit"]:
        _body(f"edit {edit['id']}, which a replay sends, body", edit["body"], edit["body_size"])
    for item in shown["replays"]:
        printing.block(
            f"replay {item['replay_id']} by {item['requested_by']}",
            _told(item),
        )
    for step in shown["history"]:
        told = {name: value for name, value in step.items() if name not in _TOLD_ELSEWHERE}
        printing.block(f"{step['action']} by {step['by']}, {step['at']}", json.dumps(told))


def _told(item: Mapping[str, Any]) -> str:
    """Such as `published to payments: died_again, as letter 54`."""
    said = [
        item["outcome"],
        f"as letter {letter}" if (letter := item["next_letter_id"]) else None,
        item["detail"],
    ]
    told = ", ".join(filter(None, said))
    return f"{item['state']} to {item['target']}" + (f": {told}" if told else "")


def _headers(headers: Any, types: Sequence[tuple[str, str]]) -> list[str]:
    """One `name (type): value` a line. Names twice or of odd bytes come as pairs, in the same order."""
    if not isinstance(headers, dict) or "$malformed" in headers:
        return [json.dumps(headers)]
    values = [pair[1] for pair in headers["$pairs"]] if headers.keys() == {"$pairs"} else [*headers.values()]
    return [
        f"{name} ({kind}): {json.dumps(value)}" for (name, kind), value in zip(types, values, strict=True)
    ]


def _body(name: str, body: Mapping[str, Any], size: int) -> None:
    kind, value = next(iter(body.items()))
    notes = [body.get("kind"), f"{size} bytes", "cut" if body.get("truncated") else None]
    title = f"{name} ({', '.join([kind, *(note for note in notes if note)])})"
    if kind == "hex":
        text = _dump(bytes.fromhex(value), size)
    else:
        text = value if isinstance(value, str) and kind == "text" else json.dumps(value, indent=1)
    printing.block(title, text)


def _dump(data: bytes, size: int) -> str:
    """Sixteen bytes a line, with what of them is ASCII."""
    lines = []
    for at in range(0, min(len(data), MAX_HEX_BYTES), 16):
        row = data[at : at + 16]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {plain}")
    if size > MAX_HEX_BYTES:
        lines.append(f"… {size - MAX_HEX_BYTES} bytes more: --json has the first 131,072 of all")
    return "\n".join(lines)
