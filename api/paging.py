"""A page of a list, and where the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from fastapi.responses import Response

from api.json_text import JsonResponse


class Listed(Protocol):
    """What a list shows."""

    def as_json(self) -> Mapping[str, Any]: ...


T = TypeVar("T", bound=Listed)


def page_answer(name: str, found: Sequence[T], limit: int, cursor: Callable[[T], object]) -> Response:
    """The first `limit` of `found`, of which one more was asked for to know whether there is a next page."""
    shown = found[:limit]
    more = cursor(shown[-1]) if len(found) > limit else None
    return JsonResponse({name: [each.as_json() for each in shown], "next_cursor": more})
