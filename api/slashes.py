"""Ids with a slash in them, as other Celery programs may give them: `%2F` in a path parts nothing.

A server hands the path on with `%2F` and `/` alike, so that no route would find such a job.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Path
from pydantic import BeforeValidator
from starlette.types import Scope

# Below this the ids are not ours alone.
JOBS = "/jobs/"
_ESCAPED = re.compile("%2f", re.IGNORECASE)
# Half a pair of surrogates, which no path that was decoded has.
_STAND_IN = "\udc2f"


def kept(scope: Scope) -> Scope:
    """The scope of a request, in which an escaped slash in a job's id looks like none."""
    raw = (scope.get("raw_path") or b"").decode("ascii", "replace")
    if not _ESCAPED.search(raw) or not scope["path"].startswith(scope.get("root_path", "") + JOBS):
        return scope
    # A copy: the server logs the path of its own.
    return {**scope, "path": _STAND_IN.join(map(unquote, _ESCAPED.split(raw)))}


def given_back(value: Any) -> Any:
    """A part of such a path as the client meant it."""
    return value.replace(_STAND_IN, "/") if isinstance(value, str) else value


JobId = Annotated[str, BeforeValidator(given_back), Path()]
