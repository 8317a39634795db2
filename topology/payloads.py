"""A payload against the model of its job type."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ValidationError

from topology.spec import JobType


def validated(job: JobType, payload: dict[str, Any], text: bytes | None = None) -> BaseModel:
    """The payload by JSON's rules: a strict model still takes a datetime from a string.

    Except where pydantic's parser refuses what is JSON, a lone surrogate: Python's rules then name
    the field, or take it where anything goes.

    Args:
        text: the payload as JSON, where the caller has it.

    Raises:
        ValidationError: it does not fit the model.
        ValueError: it holds NaN or an infinity, which JSON cannot.
    """
    try:
        return job.payload.model_validate_json(text or json.dumps(payload, allow_nan=False))
    except ValidationError as error:
        if error.error_count() != 1 or error.errors(include_url=False)[0]["type"] != "json_invalid":
            raise
    return job.payload.model_validate(payload)
