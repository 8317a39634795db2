"""Which letters died alike."""

from __future__ import annotations

import hashlib
import json
import re

from storage.groups import Group
from storage.text import safe_text

_FRAME = re.compile(r'^\s*File "(?P<path>[^"\n]+)", line \d+, in (?P<function>\S+)', re.MULTILINE)
_NOT_OURS = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python\d[^/\\]*)[/\\]|^<")
# Directories kept of a path: enough to tell files apart, few enough to be the same on every machine.
_KEPT_PARTS = 3


def top_frame(traceback: str) -> str | None:
    """`file:function` of the deepest frame outside of installed packages; else of the deepest at all.

    Without the line number, which changes with every release.
    """
    frames = [(match["path"], match["function"]) for match in _FRAME.finditer(traceback)]
    if not frames:
        return None
    path, function = next((frame for frame in reversed(frames) if not _NOT_OURS.search(frame[0])), frames[-1])
    parts = re.split(r"[/\\]", path)
    return safe_text(f"{'/'.join(parts[-_KEPT_PARTS:])}:{function}", 500)


def group_of(
    *, queue: str, task: str | None, reason: str, exception_type: str | None, frame: str | None
) -> Group:
    """The group with its fingerprint: 32 hex digits over all five."""
    spelled = json.dumps([queue, task, reason, exception_type, frame])
    fingerprint = hashlib.sha256(spelled.encode()).hexdigest()[:32]
    return Group(fingerprint, queue, task, reason, exception_type, frame)
