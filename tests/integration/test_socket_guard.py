"""A guarded process reaches what it may, whichever way it opens a connection."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import clean_environment
from tests.support.receiver import receiver

# Names whose owner changes his mind, and what the system would look up by itself.
GUARDED = """
import socket, sys
port, answers = int(sys.argv[1]), sys.argv[2].split(",")
def look_up(host, port, *where, **options):
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answers]
socket.getaddrinfo = look_up
from outbound.reach import Reach
from outbound.socket_guard import SocketGuard
SocketGuard(Reach.allowing(["127.0.0.2", "friend.example"])).install()
try:
    exec(sys.argv[3])
    print("reached")
except OSError as error:
    print(type(error).__name__, error)
"""
TCP, UDP = "socket.socket()", "socket.socket(type=socket.SOCK_DGRAM)"


def guarded(port: int, action: str, answers: str = "127.0.0.1") -> str:
    command = [sys.executable, "-c", GUARDED, str(port), answers, action]
    done = subprocess.run(
        command, env=clean_environment({}), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("action", "answers"),
    [
        ("socket.create_connection(('rebinding.example', port))", "127.0.0.1"),
        ("socket.create_connection(('rebinding.example', port))", "127.0.0.2,127.0.0.1"),
        (f"{TCP}.connect(('127.0.0.1', port))", "127.0.0.2"),
        (f"{TCP}.connect_ex(('localhost', port))", "127.0.0.2"),
        (f"{UDP}.sendto(b'x', ('127.0.0.1', port))", "127.0.0.2"),
        (f"{UDP}.sendmsg([b'x'], [], 0, ('127.0.0.1', port))", "127.0.0.2"),
        ("socket.socket(socket.AF_UNIX).connect('/run/docker.sock')", "127.0.0.2"),
        ("socket.socket(socket.AF_INET6).connect(('::ffff:127.0.0.1', port))", "127.0.0.2"),
    ],
)
def test_what_may_not_be_reached_is_refused_before_it_is_connected_to(action: str, answers: str) -> None:
    with receiver() as inside:
        assert guarded(inside.port, action, answers).startswith("NotReachedError ")


@pytest.mark.parametrize(
    ("action", "answers"),
    [
        ("socket.create_connection(('hooks.example', port))", "127.0.0.2"),
        (f"{TCP}.connect(('127.0.0.2', port))", "127.0.0.1"),
        (f"s = {UDP}; s.connect(('127.0.0.2', port)); s.sendmsg([b'x'])", "127.0.0.1"),
    ],
)
def test_what_is_allowed_is_reached(action: str, answers: str) -> None:
    with receiver("127.0.0.2") as allowed:
        assert guarded(allowed.port, action, answers) == "reached"


def test_a_name_that_is_allowed_leads_anywhere() -> None:
    with receiver() as inside:
        assert guarded(inside.port, "socket.create_connection(('Friend.Example.', port))") == "reached"
