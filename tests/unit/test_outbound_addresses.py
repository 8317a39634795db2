"""Which addresses are public."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from outbound.addresses import not_public, read_address


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0.0.0.0", "this network"),
        ("10.1.2.3", "private"),
        ("100.64.0.1", "shared"),
        ("100.100.100.200", "shared"),
        ("127.8.8.8", "loopback"),
        ("168.63.129.16", "metadata"),
        ("169.254.169.254", "link-local"),
        ("172.31.255.255", "private"),
        ("192.0.0.192", "reserved"),
        ("192.168.1.1", "private"),
        ("198.19.0.1", "benchmarks"),
        ("203.0.113.9", "documentation"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::127.0.0.1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b:1::10.0.0.1", "reserved"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a9fe:a9fe::1", "link-local"),
        ("2001:0:1:2:3:4:5:6", "reserved"),
        ("2001:db8::1", "documentation"),
        ("fd00:ec2::254", "private"),
        ("fe80::1", "link-local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("4000::1", "reserved"),
    ],
)
def test_what_is_nobodys_public_address_is_named(text: str, what: str) -> None:
    found = not_public(ip_address(text))
    assert found is not None
    assert what in found


@pytest.mark.parametrize(
    "text",
    [
        "1.1.1.1",
        "100.63.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "2606:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::1",
    ],
)
def test_public_addresses_are_public(text: str) -> None:
    assert not_public(ip_address(text)) is None


def test_an_address_with_a_zone_or_in_another_spelling_is_none() -> None:
    for text in ("fe80::1%eth0", "127.1", "0177.0.0.1", "2130706433", "127.0.0.01", "name"):
        assert read_address(text) is None
