"""Chords that are derived from the jobs' rows, over whichever result backend an app has.

A backend's own chords count members, or poll for them: a member that runs twice, or is replayed, would be
counted twice, and one that never ran would be waited for without an end.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from kombu.utils.json import dumps

from storage import chords
from workers import child, loop


class DerivedChords:
    """Mixed in before a backend class."""

    app: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Key-value backends put their own in as an attribute of the instance.
        self.__dict__.pop("apply_chord", None)

    def ensure_chords_allowed(self) -> None:
        """They are, under every result backend."""

    def apply_chord(self, header_result_args: Any, body: Any, **kwargs: Any) -> None:
        """Put the chord on record. Its header is published after this.

        Raises:
            storage.errors.DatabaseAwayError: nothing has been sent.
        """
        group_id, results = header_result_args
        shape = [_shape(result) for result in results]
        encoded = json.dumps(json.loads(dumps(body))).encode()
        members = list(flat(shape))

        loop.ask(
            self.app,
            lambda connection: chords.add(connection, group_id, members, json.dumps(shape).encode(), encoded),
        )

    def add_to_chord(self, chord_id: str, result: Any) -> None:
        """For `Task.add_to_chord`: one more member, which is not known to have succeeded yet."""

        async def extend(connection: Any) -> bool:
            async with connection.transaction():
                found = await chords.read(connection, chord_id)
                if found is None or result.id in found.members:
                    return found is not None
                shape = json.dumps([*json.loads(found.shape), _shape(result)]).encode()
                return await chords.extend(connection, chord_id, result.id, shape)

        if not loop.ask(self.app, extend):
            raise ValueError(f"no chord {chord_id} waits for members")

    def on_chord_part_return(self, request: Any, state: Any, result: Any, **kwargs: Any) -> None:
        """The worker's main process looks at the chord, once the member's end is on record."""

    def set_chord_size(self, group_id: Any, chord_size: Any) -> None:
        """Nothing is counted."""

    def _call_task_errbacks(self, request: Any, exc: Any, traceback: Any) -> None:
        """Not from a run in a worker: once its end is on record, the main process sees to it."""
        if child.current() is None or getattr(request, "is_eager", False):
            self.call_errbacks(request, exc, traceback)

    def call_errbacks(self, request: Any, exc: Any, traceback: Any) -> None:
        """Celery's: functions that take (request, exc, traceback) are called here, tasks are sent."""
        super()._call_task_errbacks(request, exc, traceback)  # type: ignore[misc]


@functools.cache
def chorded(backend: type) -> type:
    """The backend class with our chords."""
    if issubclass(backend, DerivedChords):
        return backend
    return type(backend.__name__, (DerivedChords, backend), {"__module__": backend.__module__})


def flat(shape: Any) -> Any:
    """The ids in a nested list, in order."""
    for each in shape:
        if isinstance(each, list):
            yield from flat(each)
        else:
            yield each


def _shape(result: Any) -> Any:
    results = getattr(result, "results", None)
    return str(result.id) if results is None else [_shape(each) for each in results]
