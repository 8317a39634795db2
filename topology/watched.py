"""A queue to drain that is not of the topology, as a setting names it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

_ESCAPES = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MARK = "//"


@dataclass(frozen=True)
class Watched:
    """`vhost` is None for the vhost that the process itself works in."""

    queue: str
    vhost: str | None = None

    @classmethod
    def parse(cls, text: str) -> Watched:
        """`QUEUE`, taken as it is; or `//VHOST/QUEUE`, both percent-encoded (`/` is %2F, `,` is %2C).

        Raises:
            ValueError: what begins with `//` and is no vhost and queue.
        """
        if not text.startswith(_MARK):
            return cls(text)
        vhost, slash, queue = text.removeprefix(_MARK).partition("/")
        if not (vhost and slash and queue) or "/" in queue:
            raise ValueError(f"{text!r} must look like //VHOST/QUEUE, with / in a name written %2F")
        if _ESCAPES.search(text):
            raise ValueError(f"{text!r} has a % that is no escape; write it %25")
        try:
            return cls(unquote(queue, errors="strict"), unquote(vhost, errors="strict"))
        except UnicodeDecodeError:
            raise ValueError(f"{text!r} has escapes that are no UTF-8") from None


@dataclass(frozen=True)
class Place:
    """A queue in its vhost."""

    vhost: str
    queue: str

    def shown(self, home: str) -> str:
        """For messages of a process that works in vhost `home`."""
        return self.queue if self.vhost == home else f"{self.queue} of vhost {self.vhost}"
