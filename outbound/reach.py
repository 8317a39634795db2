"""Which destinations may be reached: what is public by https, and what the operator allows.

A name is looked up once, every address that it has is judged, and the connection goes to one of those: who
answers for the name cannot answer otherwise the second time (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_network

from outbound.addresses import IPAddress, IPNetwork, embedded, not_public, read_address
from outbound.destination import BadUrlError, Destination

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
LOOKUPS_AT_ONCE = 8


class RefusedError(Exception):
    """The destination may not be reached. The message names the address, and nothing of the URL besides."""


class UnresolvedError(Exception):
    """The host's name has no address now."""


@dataclass(frozen=True)
class Reach:
    """`networks` and `hosts` are allowed, whatever they are, and by http too. `*.internal` is every name
    below `internal`."""

    networks: tuple[IPNetwork, ...] = ()
    hosts: tuple[str, ...] = ()

    @classmethod
    def allowing(cls, entries: Iterable[str]) -> Reach:
        """Addresses, networks (`10.0.0.0/8`), names (`hooks.internal`), all below one (`*.internal`).

        Raises:
            ValueError: one is none of these.
        """
        networks: list[IPNetwork] = []
        hosts: list[str] = []
        for entry in entries:
            text = entry.lower()
            if read_address(text.partition("/")[0]) is not None:
                networks.append(ip_network(text))
            elif _is_a_name(text.removeprefix("*.")):
                hosts.append(text)
            else:
                raise ValueError(f"{entry!r} is no address, network (10.0.0.0/8) or host name")
        return cls(tuple(networks), tuple(hosts))

    def names(self, host: str) -> bool:
        """Whether the operator allows this name, wherever it leads."""
        return any(host == each or (each[0] == "*" and host.endswith(each[1:])) for each in self.hosts)

    def check(self, to: Destination) -> None:
        """Refuse what is known to be refused without looking a name up.

        Raises:
            RefusedError
        """
        if self.names(to.host):
            return
        self.check_host(to.host, to.address)
        if to.scheme == "http" and not (self.networks if to.address is None else self._allows(to.address)):
            raise RefusedError("http is for allowed hosts only: use https")

    def check_host(self, host: str, address: IPAddress | None) -> None:
        """The same by whatever protocol.

        Args:
            host: lower case, without brackets.
            address: where that is one.

        Raises:
            RefusedError
        """
        if self.names(host):
            return
        if address is not None:
            self.judge(address)
        elif (host == "localhost" or host.endswith(".localhost")) and not self.networks:
            raise RefusedError("localhost is loopback")

    async def addresses(self, to: Destination, resolve: Resolve) -> list[str]:
        """Those to connect to, all judged.

        Raises:
            RefusedError: one of them may not be reached.
            UnresolvedError: there is none.
        """
        if to.address is not None:
            self.check(to)
            return [str(to.address)]
        found = list(dict.fromkeys(await resolve(to.host, to.port)))
        if not found:
            raise UnresolvedError("the host's name has no address")
        if not self.names(to.host):
            for text in found:
                if (address := read_address(text)) is None:
                    raise RefusedError(f"{text} is not judged: it has a zone")
                self._judge(to, address)
        return found

    def judge(self, address: IPAddress) -> None:
        """By whatever protocol.

        Raises:
            RefusedError: it is neither public nor allowed.
        """
        if not self._allows(address) and (what := not_public(address)):
            raise RefusedError(f"{address} is {what}")

    def _judge(self, to: Destination, address: IPAddress) -> None:
        self.judge(address)
        if to.scheme == "http" and not self._allows(address):
            raise RefusedError("http is for allowed hosts only: use https")

    def _allows(self, address: IPAddress) -> bool:
        return any(address in network or embedded(address) in network for network in self.networks)


class SystemResolver:
    """Asks the system's resolver, in threads of its own: names that nobody answers for hold up few."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="outbound-lookup")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Every address that it has for a name.

        Raises:
            UnresolvedError
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, _look_up, host, port)
        except (OSError, UnicodeError) as error:
            raise UnresolvedError(f"the host's name has no address: {error}") from None
        return [str(where[0]) for *_, where in found]

    def close(self) -> None:
        """Without waiting for look-ups that hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_a_name(text: str) -> bool:
    try:
        return Destination.parse(f"https://{text}").host == text
    except BadUrlError:
        return False


def _look_up(host: str, port: int) -> list[tuple[object, object, object, object, tuple[object, ...]]]:
    return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
