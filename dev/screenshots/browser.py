"""A headless Chromium, driven over WebDriver's own HTTP (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from dev.errors import DevError
from dev.ports import free_ports
from dev.waiting import NotYet, wait_for

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's fixed key of a reference to an element
ENTER = "\ue007"  # as WebDriver writes the key
_WINDOW = (1200, 2600)
_WAIT_S = 20.0
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-proxy-server",
    "--disable-background-networking",
)


class NoBrowser(DevError):
    """chromedriver is not installed: `apt-get install chromium chromium-driver`."""


class PageFailed(DevError):
    """The browser refused a command, or a page never showed what was waited for."""


class Browser:
    """One tab. Selectors are CSS."""

    def __init__(self, session: httpx.Client) -> None:
        self._session = session

    def open(self, url: str) -> None:
        self._send("POST", "url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """The value that a script returns in the page."""
        return self._send("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def type(self, selector: str, text: str) -> None:
        self._send("POST", f"element/{self._find(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        self._send("POST", f"element/{self._find(selector)}/click", {})

    def wait(self, condition: str, what: str) -> None:
        """Until the JavaScript expression `condition` is true in the page.

        Raises:
            PageFailed: it was not, for 20 s.
        """

        def probe() -> None:
            if not self.run(f"return Boolean({condition})"):
                raise NotYet(f"the page does not show {what}")

        try:
            wait_for(what, probe, seconds=_WAIT_S, say=_quiet)
        except DevError as error:
            raise PageFailed(
                f"{error}; the page says: {self.run('return document.body.innerText')[:500]}"
            ) from error

    def picture(self, selector: str) -> bytes:
        """PNG of one element, as far as the window shows it."""
        return base64.b64decode(self._send("GET", f"element/{self._find(selector)}/screenshot"))

    def _find(self, selector: str) -> str:
        found: dict[str, str] = self._send("POST", "element", {"using": "css selector", "value": selector})
        return found[_ELEMENT]

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._session.request(method, path, json=body)
        value = answer.json()["value"]
        if answer.is_error:
            raise PageFailed(f"{method} {path}: {value['error']}: {value['message'].splitlines()[0]}")
        return value


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with its own `profile`, an empty directory; closed at the end.

    Raises:
        NoBrowser: chromedriver is not installed.
        PageFailed: the browser does not start.
    """
    driver = shutil.which("chromedriver")
    if driver is None:
        raise NoBrowser(NoBrowser.__doc__)
    (port,) = free_ports(1, "up")
    process = subprocess.Popen(
        [driver, f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the browser is in it too: nothing of it outlives us
    )
    # Loopback: a proxy of the environment must not be asked.
    root = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
    try:
        wait_for("chromedriver", lambda: _ready(root), seconds=_WAIT_S, say=_quiet)
        size = f"--window-size={_WINDOW[0]},{_WINDOW[1]}"
        options = {"args": [*_ARGUMENTS, size, f"--user-data-dir={profile}"]}
        answer = root.post(
            "/session", json={"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        )
        if answer.is_error:
            raise PageFailed(f"no browser session: {answer.json()['value']['message']}")
        session = f"/session/{answer.json()['value']['sessionId']}"
        with httpx.Client(base_url=f"{root.base_url}{session}", timeout=60, trust_env=False) as client:
            try:
                yield Browser(client)
            finally:
                root.delete(session)  # closes the browser
    finally:
        root.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def _quiet(_: str) -> None:
    """A page takes a second or two; nobody waits for lines about it."""


def _ready(root: httpx.Client) -> None:
    try:
        if root.get("/status").json()["value"]["ready"]:
            return
    except httpx.TransportError:
        pass
    raise NotYet("chromedriver is starting")
