"""Who is to be told when a job has ended: what a submission may ask for. Pure checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.problems import FieldError
from outbound.destination import MAX_URL, BadUrlError, Destination
from outbound.reach import Reach, RefusedError
from storage.job_callbacks import FINAL, JobCallback

URL, ON = "callback_url", "callback_on"
NAMES = (URL, ON)
CALLBACK_SCHEMA: dict[str, Any] = {
    URL: {
        "type": "string",
        "format": "uri",
        "maxLength": MAX_URL,
        "description": "gets a signed POST once the job has ended: https and public, or allowed",
    },
    ON: {
        "type": "array",
        "items": {"type": "string", "enum": list(FINAL)},
        "minItems": 1,
        "uniqueItems": True,
        "description": "the ends it is told of; without this each",
    },
}


def read_callback(
    body: Mapping[str, Any], reach: Reach | None, errors: list[FieldError]
) -> JobCallback | None:
    """The callback in a submission, or None where it has none; what is wrong with it is added to `errors`.

    Args:
        reach: None where callbacks are not taken.
    """
    if URL not in body:
        if ON in body:
            errors.append(FieldError(ON, f"needs {URL}"))
        return None
    if reach is None:
        errors.append(FieldError(URL, "is not taken here: the operator has not set REDRIVE_CALLBACK_SECRET"))
        return None
    states = body.get(ON, list(FINAL))
    if not isinstance(states, list) or not states or not all(state in FINAL for state in states):
        errors.append(FieldError(ON, f"must be a list of some of {', '.join(FINAL)}"))
    elif len(set(states)) < len(states):
        errors.append(FieldError(ON, "names a state twice"))
    if (fault := _fault(body[URL], reach)) is not None:
        errors.append(FieldError(URL, fault))
    if errors:
        return None
    return JobCallback(body[URL], Destination.parse(body[URL]).place, tuple(states))


def _fault(url: Any, reach: Reach) -> str | None:
    if not isinstance(url, str):
        return "must be a string"
    try:
        reach.check(Destination.parse(url))
    except BadUrlError as error:
        return str(error)
    except RefusedError as error:
        return f"may not be called: {error}"
    return None
