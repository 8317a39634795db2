"""The pictures of the management UI: each page shows what its picture is for, on every broker version."""

import shutil
import subprocess
from pathlib import Path

import pytest

from dev.screenshots.browser import browser
from dev.screenshots.pages import PICTURES, take
from dev.screenshots.scene import scene
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress

IMAGES = Path(__file__).parents[2] / "docs" / "images" / "management-ui"
PNG = b"\x89PNG\r\n\x1a\n"
needs_browser = pytest.mark.skipif(
    shutil.which("chromedriver") is None, reason="not run: needs chromium and chromium-driver"
)


def test_the_document_has_a_picture_of_each_page() -> None:
    text = (IMAGES.parents[1] / "management-ui.md").read_text(encoding="utf-8")

    assert sorted(file.stem for file in IMAGES.glob("*")) == sorted(PICTURES)
    assert [name for name in PICTURES if f"(images/management-ui/{name}.png)" not in text] == []


@needs_browser
def test_nothing_of_the_browser_outlives_it(tmp_path: Path) -> None:
    def processes() -> list[str]:
        found = subprocess.run(
            ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
        ).stdout
        return [line for line in found.splitlines() if f"--user-data-dir={tmp_path}" in line]

    with browser(tmp_path) as page:
        page.open("data:text/html,<p>here</p>")
        assert page.run("return document.body.innerText") == "here"
        assert processes() != []

    eventually(lambda: processes() == [], 10, "the browser's processes are gone")


@needs_browser
def test_each_page_can_be_reached_and_shows_its_subject(vhost: Vhost, tmp_path: Path) -> None:
    with (
        browser(tmp_path) as page,
        scene(AmqpAddress.parse(vhost.amqp_url), vhost.management_url, lambda _: None),
    ):
        taken = dict(take(page, vhost.management_url, vhost.vhost))

    assert taken.keys() == PICTURES.keys()
    assert [name for name, picture in taken.items() if not picture.startswith(PNG)] == []
