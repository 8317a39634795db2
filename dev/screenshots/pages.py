"""Which pages are pictured, and what of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote, urlsplit

from dev.management import without_login
from dev.screenshots.browser import ENTER, Browser
from dev.screenshots.scene import QUEUE, STUCK
from topology.names import dlq, dlx, step

_TOP = step(QUEUE.name, QUEUE.ladder, QUEUE.ladder.steps - 1)


def _queues(page: Browser, vhost: str) -> None:
    _go(page, "#/queues", "Queues")
    page.wait("document.querySelector('#queues-name')", "the filter")
    page.type("#queues-name", QUEUE.name + ENTER)
    rows = "[...document.querySelectorAll('table.list tbody tr')]"
    page.wait(f"{rows}.length && {rows}.every(row => row.innerText.includes({QUEUE.name!r}))", "its queues")


def _work_queue(page: Browser, vhost: str) -> None:
    _go(page, f"#/queues/{vhost}/{QUEUE.name}", QUEUE.name)
    _shows(page, dlx(QUEUE.name))
    _unfold(page, "Consumers", "Bindings")
    _shows(page, "a-worker")


def _ladder_step(page: Browser, vhost: str) -> None:
    _go(page, f"#/exchanges/{vhost}/{_TOP}", _TOP)
    _shows(page, "*.#")
    _unfold(page, "Bindings")


def _dead_letter_exchange(page: Browser, vhost: str) -> None:
    _go(page, f"#/exchanges/{vhost}/{dlx(QUEUE.name)}", dlx(QUEUE.name))
    _shows(page, dlq(QUEUE.name))
    _unfold(page, "Bindings")


def _death_history(page: Browser, vhost: str) -> None:
    _go(page, f"#/queues/{vhost}/{dlq(QUEUE.name)}", dlq(QUEUE.name))
    page.wait("document.querySelector('form[action=\"#/queues/get\"]')", "the form to get messages")
    _unfold(page, "Get messages")
    page.run("document.querySelector('form[action=\"#/queues/get\"] [type=submit]').click()")
    page.wait(
        "document.querySelector('#main').innerText.includes('x-first-death-reason')", "the death history"
    )


def _stuck(page: Browser, vhost: str) -> None:
    _go(page, f"#/queues/{vhost}/{STUCK.name}", STUCK.name)
    _shows(page, "Dead-lettered")
    _unfold(page)


# Name of the file, and how to come to the page. The document beside the pictures tells what to see there.
PICTURES: dict[str, Callable[[Browser, str], None]] = {
    "queues": _queues,
    "work-queue": _work_queue,
    "ladder-step": _ladder_step,
    "dead-letter-exchange": _dead_letter_exchange,
    "death-history": _death_history,
    "stuck-letters": _stuck,
}


def take(page: Browser, management_url: str, vhost: str) -> Iterator[tuple[str, bytes]]:
    """Each picture's name and PNG. `management_url` holds the log-in, `vhost` is the vhost's name."""
    parts = urlsplit(management_url)
    page.open(without_login(management_url))
    page.wait("document.querySelector('input[name=username]')", "the log-in")
    page.type("input[name=username]", unquote(parts.username or "guest"))
    page.type("input[name=password]", unquote(parts.password or "guest"))
    page.click("input[type=submit]")
    page.wait("document.querySelector('#tabs li')", "the first page")
    for name, go in PICTURES.items():
        go(page, quote(vhost, safe=""))
        # The same on every machine: no charts, no names of hosts, no clock.
        page.run(_PLAIN)
        page.wait("jQuery(':animated').length === 0", "the end of its animation")
        yield name, page.picture("#main")


_PLAIN = """
const hide = node => { node.style.display = 'none'; };
for (const title of document.querySelectorAll('#main h3')) {
  if (!/Queued messages|Message rates|Add binding/.test(title.innerText)) continue;
  hide(title);
  for (let next = title.nextElementSibling; next && next.tagName !== 'H3'; next = next.nextElementSibling) {
    hide(next);
  }
}
document.querySelectorAll('#main form[action="#/bindings"]').forEach(hide);
"""


def _go(page: Browser, fragment: str, title: str) -> None:
    """To a page, until its title is there."""
    page.run(f"window.location.hash = {json.dumps(fragment)}")
    page.wait(f"document.querySelector('#main h1')?.textContent.includes({title!r})", f"the page of {title}")


def _shows(page: Browser, text: str) -> None:
    """Until a text is in the page, folded away or not."""
    page.wait(f"document.querySelector('#main').textContent.includes({text!r})", text)


def _unfold(page: Browser, *titles: str) -> None:
    """Open these sections; only they and the overview stay."""
    page.run(
        """
        for (const section of document.querySelectorAll('#main .section, #main .section-hidden')) {
          const title = section.querySelector('h2').innerText;
          if (title.startsWith('Overview')) continue;
          const wanted = arguments[0].some(name => title.startsWith(name));
          section.style.display = wanted ? 'block' : 'none';
          section.querySelector('.hider').style.display = 'block';
        }
        """,
        list(titles),
    )
