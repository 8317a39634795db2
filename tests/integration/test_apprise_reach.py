"""What Apprise may call: real listeners on loopback, of which only one address is allowed."""

from __future__ import annotations

import ast
import inspect
import json
import socket
import sys
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, cast

import pytest
from apprise.manager_plugins import NotificationManager

from dev.loopback_http import Response
from dlq_consumer.channels import apprise_url
from dlq_consumer.channels.apprise_url import LOCAL, AppriseUrl
from dlq_consumer.channels.channel import DeliveryError
from outbound.reach import Reach
from storage.alerts import Alert
from tests.support import background
from tests.support.receiver import receiver

# Of a library of one of Apprise's plugins.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
ALLOWED = "127.0.0.2"
# What they reach the world with beside Python's sockets.
PAST_SOCKETS = {
    "_ctypes", "_posixsubprocess", "cffi", "ctypes", "dbus", "gi", "multiprocessing", "objc", "pty",
    "subprocess", "syslog", "win32api", "win32con", "win32gui", "winrt",
}  # fmt: skip
ALERT = Alert("id", "subject", "test", None, "detail", datetime(2026, 1, 1, tzinfo=UTC), 1)


def send(url: str, *allowed: str) -> None:
    background.run(AppriseUrl(url, 1, 15, Reach.allowing(allowed or [ALLOWED])).send(ALERT))


@pytest.mark.parametrize(
    "url",
    [
        "json://127.0.0.1:9/secret",
        "jsons://[::ffff:10.0.0.1]/secret",
        "xml://[::1]/secret",
        "rsyslog://169.254.169.254",
        "mailtos://user:secret@example.com?smtp=192.168.0.1",
    ],
)
def test_an_address_in_a_url_is_refused_at_the_start_unless_it_is_allowed(url: str) -> None:
    with pytest.raises(ValueError, match="REDRIVE_ALERT_ALLOW") as refused:
        AppriseUrl(url, 3, 1, Reach.allowing([ALLOWED]))
    assert str(refused.value).startswith("number 3 (")
    assert "secret" not in str(refused.value)
    AppriseUrl(url, 3, 1, Reach.allowing(["0.0.0.0/0", "::/0"]))


def test_localhost_is_refused_at_the_start_where_nothing_is_allowed() -> None:
    with pytest.raises(ValueError, match="localhost is loopback"):
        AppriseUrl("json://localhost/", 1, 1, Reach())


@pytest.mark.parametrize("url", ["syslog://", "SYSLOG://_/local5", "dbus://", "windows://secret", "qt://"])
def test_what_notifies_the_machine_itself_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ValueError, match="notifies the machine that it runs on") as refused:
        AppriseUrl(url, 2, 1, Reach.allowing(["0.0.0.0/0", "::/0"]))
    assert "secret" not in str(refused.value)


def test_several_urls_in_one_are_refused_and_not_sent_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (f"json://{ALLOWED}/secret,syslog://", f"json://{ALLOWED}/, json://example.com/"):
        with pytest.raises(
            ValueError, match=r"number 2 \(json://\) is several URLs: separate them by spaces"
        ):
            AppriseUrl(url, 2, 1, Reach.allowing([ALLOWED]))
    monkeypatch.setattr(apprise_url, "_parse_urls", lambda url: [url])
    with receiver(ALLOWED) as first, receiver(ALLOWED) as second:
        send(f"json://{ALLOWED}:{first.port}/,json://{ALLOWED}:{second.port}/")
        assert (len(first.taken), len(second.taken)) == (1, 0)


def test_each_plugin_that_goes_past_python_s_sockets_is_known() -> None:
    """Another release of Apprise may have another one."""
    found, manager = set(), cast(Any, NotificationManager)()
    for plugin in manager.plugins():
        if imported(sys.modules[plugin.__module__]) & PAST_SOCKETS:
            for schemes in (plugin.protocol, plugin.secure_protocol):
                found |= {schemes} if isinstance(schemes, str) else set(schemes or ())
    assert found == LOCAL


def imported(module: ModuleType) -> set[str]:
    """Packages that its source names."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_services_with_a_place_of_their_own_pass() -> None:
    for url in (
        "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
        "sendgrid://apikeyabcd:from@example.com/to@example.com",
    ):
        assert AppriseUrl(url, 1, 1, Reach()).name.startswith("apprise-1-")


def test_what_is_allowed_by_address_or_name_is_called() -> None:
    with receiver(ALLOWED) as allowed, receiver() as named:
        send(f"json://{ALLOWED}:{allowed.port}/")
        send(f"json://localhost:{named.port}/", "localhost")
        for taken in (allowed.taken, named.taken):
            assert [json.loads(request.body)["type"] for request in taken] == ["info"]


def test_a_name_or_a_number_that_leads_to_another_address_is_never_connected_to() -> None:
    with receiver() as inside:
        for host in ("localhost", "2130706433", "0x7f000001"):
            with pytest.raises(DeliveryError, match="is loopback; REDRIVE_ALERT_ALLOW does not name it"):
                send(f"json://{host}:{inside.port}/")
        assert inside.taken == []


def test_a_redirect_to_another_address_is_not_followed() -> None:
    with receiver(ALLOWED) as allowed, receiver() as inside:
        allowed.failing = [Response(307, headers={"Location": inside.url})]
        with pytest.raises(DeliveryError, match=r"127\.0\.0\.1 is loopback"):
            send(f"json://{ALLOWED}:{allowed.port}/")
        assert (len(allowed.failed), inside.taken) == (1, [])


def test_a_proxy_of_the_environment_is_used_only_where_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with pytest.raises(DeliveryError, match=r"127\.0\.0\.1 is loopback"):
            send("json://hooks.example/")
        assert proxy.taken == []
        send("json://hooks.example/", "127.0.0.1")
        assert len(proxy.taken) == 1


def test_syslog_over_udp_is_judged_too() -> None:
    # Its socket is handed the name, which the system would look up.
    with pytest.raises(DeliveryError, match="cannot be judged"):
        send("rsyslog://localhost")


def test_a_process_that_hangs_is_ended() -> None:
    with socket.create_server((ALLOWED, 0)) as silent:  # takes connections, and never answers
        url = f"json://{ALLOWED}:{silent.getsockname()[1]}/?rto=600"
        channel = AppriseUrl(url, 1, 0.2, Reach.allowing([ALLOWED]))
        for _ in range(2):
            with pytest.raises(DeliveryError, match=r"no answer within 0\.4 s"):
                background.run(channel.send(ALERT))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/nowhere/python",), "could not be started"),
        (("sh", "-c", "exit 3"), "ended with 3 before it answered"),
        (("sh", "-c", "echo; read -r; printf '{\"problem\"'"), "ended with 0 before it answered"),
    ],
)
def test_a_process_that_does_not_answer_is_a_failed_delivery(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr(apprise_url, "_COMMAND", command)
    with pytest.raises(DeliveryError, match=told):
        send(f"json://{ALLOWED}:9/")
