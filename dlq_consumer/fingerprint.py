"""Which letters died alike.

Whoever changes what makes a fingerprint raises `storage.groups.RULE`, which is kept with each group; what was
stored before keeps its group until it is regrouped. Rule 1 was without the steadying of names and paths.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from functools import lru_cache

from dlq_consumer.traceback_text import Frame, last_stack
from storage.groups import Group
from storage.text import safe_text

_INSTALLED = re.compile(r"[/\\](site-packages|dist-packages)[/\\]")
_NOT_OURS = re.compile(
    r"^<|[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*)[/\\]"
    # The standard library on Windows: C:\Python311\Lib\json\decoder.py
    r"|(?i:^[a-z]:.*\\(python|\w*conda|miniforge|mambaforge)[^\\]*\\(envs\\[^\\]+\\)?lib\\)"
)
_SEPARATOR = re.compile(r"[/\\]")
# Addresses, uuids and hashes, numbers that something counted up or made of the time.
_GENERATED = re.compile(
    r"0x[0-9a-fA-F]+"
    r"|(?<![0-9a-zA-Z])[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}(?![0-9a-zA-Z])"
    r"|(?<![0-9a-zA-Z])(?=[a-f]*[0-9])[0-9a-f]{7,64}(?![0-9a-zA-Z])"
    r"|[0-9]{6,}"
)
# A directory above the file tells files of one name apart; what stands above that is where it was deployed.
_KEPT_PARTS = 2
_MANY = 3


def steady(name: str) -> str:
    """`name` with `*` for what differs from one process or release to the next."""
    return _GENERATED.sub("*", name)


@lru_cache(maxsize=256)
def top_frame(traceback: str, task: str | None = None) -> str | None:
    """`file:function` of the deepest frame of our own code; else of the deepest at all.

    Our own is what lies outside of installed packages, or in the package that the task's name begins with.
    Of the last exception of a chain; without the line number, which changes with every release. A recursion
    without end stops anywhere in its cycle: there it is the first by name of the frames that recur.
    """
    stack = last_stack(traceback)
    if not stack.frames:
        return None
    ours = [frame for frame in stack.frames if _is_ours(frame.path, task)]
    top = ours[-1] if ours else stack.frames[-1]
    if stack.exception.startswith("RecursionError"):
        recurring = [frame for frame, times in Counter(ours or stack.frames).items() if times >= _MANY]
        top = min(recurring, key=_spelled, default=top)
    return safe_text(_spelled(top), 500)


@lru_cache(maxsize=1_024)
def group_of(
    *, queue: str, task: str | None, reason: str, exception_type: str | None, frame: str | None
) -> Group:
    """The group with its fingerprint: 32 hex digits over all five. No message is part of it."""
    exception_type = steady(exception_type) if exception_type else exception_type
    spelled = json.dumps([queue, task, reason, exception_type, frame])
    fingerprint = hashlib.sha256(spelled.encode()).hexdigest()[:32]
    return Group(fingerprint, queue, task, reason, exception_type, frame)


def _is_ours(path: str, task: str | None) -> bool:
    if not _NOT_OURS.search(path):
        return True
    package = (task or "").partition(".")[0]
    *_, installed = _INSTALLED.split(path)
    return bool(package and _INSTALLED.search(path)) and _SEPARATOR.split(installed)[0] in (
        package,
        f"{package}.py",
    )


def _spelled(frame: Frame) -> str:
    *above, file = _SEPARATOR.split(frame.path)
    # A release's own directory (20260131, 4f9a01c) is no name.
    kept = [part for part in above[-_KEPT_PARTS + 1 :] if steady(part) == part and not _is_version(part)]
    return steady("/".join([*kept, file])) + f":{steady(frame.function)}"


def _is_version(part: str) -> bool:
    return re.fullmatch(r"v?\d+([._-]\d+)*", part) is not None
