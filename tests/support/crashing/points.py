"""The places where coroutines of ours wait, as a process comes by them; and dying at one."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Watched:
    """What counts: code of `ours`, on a way that comes through a file of `roots`."""

    ours: tuple[str, ...]
    roots: frozenset[str]


# All about drain, replay and callbacks.
CONSUMER = Watched(
    ("dlq_consumer", "storage", "outbound"),
    frozenset(
        {
            "drain.py",
            "held.py",
            "batches.py",
            "intake.py",
            "probes.py",
            "replaying.py",
            "sending.py",
            "sender.py",
        }
    ),
)
# From a submission to its confirmed publish.
API = Watched(
    ("api", "storage", "topology"),
    frozenset({"jobs.py", "batches.py", "group_commit.py", "submissions.py", "relay.py", "outbox.py"}),
)
# Where somebody else waits; it is the caller that counts.
PASSED_THROUGH = frozenset({"waiting.py", "pool.py"})
PASSAGES = 2

Notice = Callable[[str], None]


def watch(notice: Notice, watched: Watched = CONSUMER) -> None:
    """From now on each loop of this process calls `notice` with each point that a task passes: `before` it
    waits there, and `after`, when the answer has come and nothing was done with it."""
    passed: Counter[str] = Counter()

    def pass_by(phase: str, place: str | None) -> None:
        if place is not None:
            passed[phase + place] += 1
            if passed[phase + place] <= PASSAGES:
                notice(f"{phase} {place} #{passed[phase + place]}")

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(Stepped(coroutine, pass_by, watched), loop=loop, **options)

    class Policy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop = super().new_event_loop()
            loop.set_task_factory(factory)
            return loop

    asyncio.set_event_loop_policy(Policy())


def note_in(file: Path) -> Notice:
    """Writes each point into a file, a line each."""

    def note(point: str) -> None:
        with file.open("a") as out:
            out.write(f"{point}\n")

    return note


def die_at(wanted: str) -> Notice:
    """SIGKILL at this point."""

    def die(point: str) -> None:
        if point == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


class Stepped(Coroutine[Any, Any, Any]):
    """A coroutine that tells of each of its waits."""

    def __init__(self, inner: Any, pass_by: Callable[[str, str | None], None], watched: Watched) -> None:
        self._inner = inner
        self._watched = watched
        self._pass_by = pass_by
        self._place: str | None = None

    def send(self, value: Any) -> Any:
        return self._step(lambda: self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._step(lambda: self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise TypeError("the loop steps it")

    def _step(self, step: Callable[[], Any]) -> Any:
        self._pass_by("after", self._place)
        waited_for = step()
        ours = [frame for frame in _frames(self._inner) if _is_ours(frame, self._watched)]
        self._place = _place(ours, self._watched)
        self._pass_by("before", self._place)
        return waited_for


def _frames(waiting: Any) -> Iterator[FrameType]:
    """From the outermost coroutine to the innermost."""
    while waiting is not None:
        frame = next(
            (found for kind in ("cr", "gi", "ag") if (found := getattr(waiting, f"{kind}_frame", None))), None
        )
        if frame is not None:
            yield frame
        names = ("cr_await", "gi_yieldfrom", "ag_await")
        inner = next((found for name in names if (found := getattr(waiting, name, None)) is not None), None)
        if inner is None and type(waiting).__name__ in ("async_generator_asend", "async_generator_athrow"):
            # It tells of its generator to nobody but the garbage collector.
            inner = next((each for each in gc.get_referents(waiting) if hasattr(each, "ag_frame")), None)
        waiting = inner


def _is_ours(frame: FrameType, watched: Watched) -> bool:
    path = Path(frame.f_code.co_filename)
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in watched.ours


def _place(frames: list[FrameType], watched: Watched) -> str | None:
    """`file:function:line` of the innermost; None for what does not count."""
    if not any(Path(frame.f_code.co_filename).name in watched.roots for frame in frames):
        return None
    for frame in reversed(frames):
        path = Path(frame.f_code.co_filename)
        if path.name not in PASSED_THROUGH:
            return f"{path.relative_to(ROOT)}:{frame.f_code.co_name}:{frame.f_lineno}"
    return None
