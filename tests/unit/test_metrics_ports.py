"""Where figures are served: the setting, and what a port that is taken does."""

from __future__ import annotations

import os
import signal
import socket
import warnings

import httpx
import pytest

from topology.prometheus.ports import parse_ports
from topology.prometheus.serving import serve


@pytest.mark.parametrize(
    ("text", "ports"), [("0", ()), ("9641", (9641,)), ("9641-9643", (9641, 9642, 9643)), (" 80-80 ", (80,))]
)
def test_ports(text: str, ports: tuple[int, ...]) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize(
    "text", ["", "-", "9641-", "-9641", "0-5", "9643-9641", "65536", "1-500", "x", "٣", "1.5", "1-2-3"]
)
def test_what_is_no_port_is_refused_with_what_it_may_be(text: str) -> None:
    with pytest.raises(ValueError, match="a range of 100 at most"):
        parse_ports(text)


def test_the_first_free_port_is_taken_and_nothing_but_the_page_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve("127.0.0.1", (port,), lambda: "") is None
        server = serve("127.0.0.1", (port, *range(port + 1, port + 50)), lambda: "up 1\n")
    assert server is not None
    url = f"http://127.0.0.1:{server.port}"
    try:
        assert httpx.get(f"{url}/metrics").text == "up 1\n"
        assert httpx.get(f"{url}/").status_code == 404
        assert httpx.post(f"{url}/metrics").status_code == 501
    finally:
        server.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/metrics")


def test_a_page_that_cannot_be_made_is_a_500_and_the_next_one_is_served() -> None:
    pages = iter(["up 1\n"])
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    server = serve("127.0.0.1", (port,), lambda: next(pages) if failed else str(1 / 0))
    assert server is not None
    failed = False
    url = f"http://127.0.0.1:{server.port}/metrics"
    try:
        assert httpx.get(url).status_code == 500
        failed = True
        assert httpx.get(url).status_code == 200
    finally:
        server.close()


def test_a_forked_process_does_not_hold_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    server = serve("127.0.0.1", (port,), lambda: "")
    assert server is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: as Celery's pool does it
        child = os.fork()
    if child == 0:
        signal.pause()
    try:
        server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
