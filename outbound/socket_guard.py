"""Judges each address to which this process connects or sends, whichever library does it.

For a process that calls code which opens connections by itself. Below Python's sockets nothing is seen: what
an extension in C connects by itself, and the system's resolver.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from outbound.addresses import IPAddress, read_address
from outbound.reach import Reach, RefusedError

# https://docs.python.org/3/library/audit_events.html: (socket, address) each, raised before it is done.
_WATCHED = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


class NotReachedError(OSError):
    """The connection was refused before it was made."""


class SocketGuard:
    """For the rest of this process's life: an audit hook cannot be taken out."""

    def __init__(self, reach: Reach) -> None:
        self.refused: list[str] = []
        self._reach = reach
        # Addresses of names that are allowed wherever they lead.
        self._led_to: set[IPAddress] = set()
        self._look_up = socket.getaddrinfo

    def install(self) -> None:
        """From now on."""
        socket.getaddrinfo = self._addresses
        sys.addaudithook(self._hook)

    def _addresses(self, host: Any, *where: Any, **options: Any) -> Any:
        """What the name has, all of it judged: one that leads inside as well as outside is refused."""
        found = self._look_up(host, *where, **options)
        addresses = [read_address(str(entry[4][0])) for entry in found]
        if self._is_named(host):
            self._led_to.update(address for address in addresses if address is not None)
        else:
            for entry, address in zip(found, addresses, strict=True):
                self._judge(entry[4], address)
        return found

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED and (to := arguments[1]) is not None:  # None: to whom it is connected
            self._judge(to, read_address(str(to[0])) if isinstance(to, tuple) else None)

    def _judge(self, to: Any, address: IPAddress | None) -> None:
        if address in self._led_to:
            return
        try:
            if address is not None:
                self._reach.judge(address)
            elif not (isinstance(to, tuple) and self._is_named(to[0])):
                # A name that the system would look up after us, an address with a zone, a local socket.
                raise RefusedError("what is no plain address cannot be judged")
        except RefusedError as error:
            self.refused.append(str(error))
            raise NotReachedError(str(error)) from None

    def _is_named(self, host: Any) -> bool:
        text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
        return self._reach.names(text.lower().removesuffix("."))
