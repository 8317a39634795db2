"""Which IP addresses are somebody's on the public Internet.

Sources: the IANA registries of special-purpose addresses
(https://www.iana.org/assignments/iana-ipv4-special-registry, …/iana-ipv6-special-registry), and what clouds
answer at. Written down, since what Python's `ipaddress` knows of them differs between its versions.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_V4 = {
    IPv4Network(network): what
    for network, what in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's customers"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata"),  # Azure
        ("169.254.0.0/16", "link-local"),  # and every cloud's metadata
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
}
_V6 = {
    IPv6Network(network): what
    for network, what in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # Teredo, ORCHID, benchmarks
        ("2001:db8::/32", "for documentation"),
        ("3fff::/20", "for documentation"),
    )
}
_V6_UNICAST = IPv6Network("2000::/3")
# Prefixes of addresses that stand for an IPv4 address, and how many bits come after that.
_EMBEDDED = (
    (IPv6Network("::ffff:0:0/96"), 0),  # RFC 4291, mapped
    (IPv6Network("64:ff9b::/96"), 0),  # RFC 6052, NAT64
    (IPv6Network("2002::/16"), 80),  # RFC 3056, 6to4
)


def not_public(address: IPAddress) -> str | None:
    """What it is instead of a public address, such as `loopback`; None where it is one."""
    address = embedded(address)
    if isinstance(address, IPv4Address):
        return next((what for network, what in _V4.items() if address in network), None)
    found = next((what for network, what in _V6.items() if address in network), None)
    return found or (None if address in _V6_UNICAST else "reserved")


def embedded(address: IPAddress) -> IPAddress:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, IPv6Address):
        for network, behind in _EMBEDDED:
            if address in network:
                return IPv4Address((int(address) >> behind) & 0xFFFFFFFF)
    return address


def read_address(text: str) -> IPAddress | None:
    """An address in its usual spelling; None where it is none. No zones."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None
