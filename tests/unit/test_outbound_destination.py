"""What is a URL to send to, and where it may lead before a name is looked up."""

from __future__ import annotations

import pytest

from outbound.destination import BadUrlError, Destination
from outbound.reach import Reach, RefusedError

NOTHING_ALLOWED = Reach()


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("https://Hooks.Example/a?k=v", "hooks.example", "/a?k=v"),
        ("https://hooks.example", "hooks.example", "/"),
        ("https://hooks.example:443/", "hooks.example", "/"),
        ("https://hooks.example.:8443/%41", "hooks.example:8443", "/%41"),
        ("http://[2606:4700:0::1111]:80/?q", "[2606:4700::1111]", "/?q"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", "/"),
    ],
)
def test_a_url_is_taken_apart(url: str, authority: str, target: str) -> None:
    found = Destination.parse(url)
    assert (found.authority, found.target) == (authority, target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example/x",
        "//hooks.example/x",
        "ftp://hooks.example/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "https://",
        "https:///x",
        "https://user@hooks.example/",
        "https://user:secret@hooks.example/",
        "https://hooks.example@127.0.0.1/",
        "https://127.0.0.1\\@hooks.example/",
        "https://hooks.example/#frag",
        "https://hooks.example:0/",
        "https://hooks.example:65536/",
        "https://hooks.example:port/",
        "https://hooks example/",
        "https://hooks.example/\r\nHost: other",
        "https://hooks.example/\x00",
        "https://bücher.example/",
        "https://１２７.0.0.1/",
        "https://%31%32%37.0.0.1/",
        "https://-x.example/",
        "https://a..example/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.0.0.1/",
        "https://017700000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://127.0.0.1.1/",
        "https://[127.0.0.1]/",
        "https://[::1%25lo]/",
        "https://[fe80::1%eth0]/",
        "https://[::1/",
        "https://hooks.example/" + "x" * 2_000,
    ],
)
def test_what_could_be_read_in_two_ways_is_no_url(url: str) -> None:
    with pytest.raises(BadUrlError) as refused:
        Destination.parse(url)
    assert "secret" not in str(refused.value)
    assert "127" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://127.0.0.1./",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/",
        "https://a.localhost/",
        "http://hooks.example/",
        "http://1.1.1.1/",
    ],
)
def test_what_is_known_to_lead_where_it_may_not_is_refused_at_once(url: str) -> None:
    with pytest.raises(RefusedError):
        NOTHING_ALLOWED.check(Destination.parse(url))


def test_what_an_operator_names_may_be_reached_by_http_too() -> None:
    reach = Reach.allowing(["10.0.0.0/8", "::1", "hooks.internal", "*.corp.example"])
    for url in (
        "http://10.9.9.9/",
        "https://[::ffff:10.0.0.1]/",
        "http://[::1]:8080/",
        "http://hooks.internal:9/",
        "https://a.b.corp.example/",
        "http://unknown.example/",  # may be one of the networks: judged when it is looked up
    ):
        reach.check(Destination.parse(url))
    for url in ("https://127.0.0.1/", "https://192.168.0.1/"):
        with pytest.raises(RefusedError):
            reach.check(Destination.parse(url))
    only_names = Reach.allowing(["*.corp.example"])
    for url in ("http://corp.example/", "http://xcorp.example/", "http://corp.example.evil.example/"):
        with pytest.raises(RefusedError):
            only_names.check(Destination.parse(url))


@pytest.mark.parametrize(
    "entry", ["10.0.0.1/8", "hooks.internal:80", "http://x", "a b", "*", "*.", "127.1", "a/b"]
)
def test_what_cannot_be_allowed_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/8|is no address"):
        Reach.allowing([entry])
