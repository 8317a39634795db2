"""`/metrics` of real processes: what Prometheus is told, also while servers are away."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.databases import ROOT
from tests.support.ports import free_port
from tests.support.promtool import promtool
from tests.support.proxy import TcpProxy
from tests.support.receiver import receiver
from tests.support.scraped import Page, scrape
from tests.support.stack import Stack
from tests.support.waiting import eventually

CHARGE = {"order_id": "o-1", "amount_cents": 100, "currency": "EUR"}


@dataclass
class Scene:
    """The API behind proxies to Postgres and to the management API."""

    stack: Stack
    database: TcpProxy
    management: TcpProxy

    @property
    def api(self) -> str:
        return f"{self.stack.http.base_url}/metrics"


def test_what_waits_what_the_rules_speak_of_and_what_is_away(
    stack: Stack, proxy: Callable[..., TcpProxy]
) -> None:
    """One scene for all: starting it takes longer than each of them."""
    stack.apply_topology()
    scene = Scene(stack, proxy(stack.database.url), proxy(stack.vhost.management_url))
    stack.start_api(
        REDRIVE_API_METRICS_PUBLIC="true",
        REDRIVE_DATABASE_URL=scene.database.url,
        REDRIVE_MANAGEMENT_URL=scene.management.url,
        REDRIVE_API_DATABASE_TIMEOUT_S="3",
    )
    the_api_tells_what_waits_and_for_how_long(scene)
    every_metric_that_an_alert_rule_speaks_of_is_told(scene)
    the_api_tells_what_it_knows_while_servers_are_away(scene)


def the_api_tells_what_waits_and_for_how_long(scene: Scene) -> None:
    stack = scene.stack
    for number in range(3):
        stack.submit("payments.charge_order", CHARGE, f"k{number}")
    eventually(lambda: stack.depth("payments") == 3, 20, "all are published")
    stack.database.execute("update redrive.jobs set queued_at = now() - interval '1 hour'")
    stack.publish("payments.dlq", b"x")

    def told() -> bool:
        page = scrape(scene.api)
        assert page.value("redrive_jobs", queue="payments", state="QUEUED") == 3
        assert 3600 <= page.value("redrive_queue_oldest_message_age_seconds", queue="payments") < 7200
        assert page.value("redrive_queue_oldest_message_age_seconds", queue="emails") == 0
        assert page.value("redrive_queue_messages", queue="payments", state="ready") == 3
        assert page.value("redrive_queue_messages", queue="payments.dlq", state="ready") == 1
        assert page.value("redrive_queue_consumers", queue="payments") == 0
        assert page.value("redrive_outbox_messages", queue="payments") == 0
        assert page.value("redrive_outbox_oldest_age_seconds", queue="payments") == 0
        assert page.value("redrive_relay_messages_total", answer="confirmed") == 3
        return {page.value("redrive_up", what=what) for what in ("broker", "database", "management")} == {1}

    eventually(told, 40, "the page tells it all")


def every_metric_that_an_alert_rule_speaks_of_is_told(scene: Scene) -> None:
    stack, ports = scene.stack, {"worker": free_port(), "dlq": free_port()}
    with receiver() as refusing:
        refusing.failing = [500] * 100
        stack.start_worker(REDRIVE_WORKER_METRICS_PORT=str(ports["worker"]))
        stack.start_consumer(
            REDRIVE_DLQ_METRICS_PORT=str(ports["dlq"]),
            REDRIVE_ALERT_WEBHOOK_URL=f"http://127.0.0.1:{refusing.port}/",
            REDRIVE_ALERT_WEBHOOK_SECRET="s",
            REDRIVE_ALERT_ALLOW="127.0.0.1",
        )
        urls = [f"http://127.0.0.1:{port}/metrics" for port in ports.values()] + [scene.api]

        def told() -> list[Page]:
            pages = [scrape(url) for url in urls]
            unrun = {"queue": "emails", "task": "emails.send_email", "state": "dead"}
            assert pages[0].value("redrive_jobs_ended_total", **unrun) == 0
            for name, labels in spoken_of().items():
                has = [
                    {label for label, _ in key}
                    for page in pages
                    for each, key in page.samples
                    if each == name
                ]
                assert has, f"{name} is told by none"
                assert all(labels <= those for those in has), name
            return pages

        pages = eventually(told, 60, "all are told")
    for page in pages:
        promtool("check", "metrics", stdin=page.text)


def spoken_of() -> dict[str, set[str]]:
    """Metrics of the alert rules, and the labels that are asked of them."""
    text = (ROOT / "docs" / "prometheus" / "redrive.rules.yml").read_text()
    found: dict[str, set[str]] = {}
    for name, selector in re.findall(r"(redrive_[a-z_]+)(?:\{([^}]*)\})?", text):
        found.setdefault(name, set()).update(re.findall(r"([a-z]+)[!=]", selector))
    return found


def the_api_tells_what_it_knows_while_servers_are_away(scene: Scene) -> None:
    scene.database.hold()
    scene.management.hold()
    took = []

    def both_away() -> bool:
        began = time.monotonic()
        page = scrape(scene.api)
        took.append(time.monotonic() - began)
        assert page.value("redrive_figures_age_seconds", part="jobs") > 0
        return page.value("redrive_up", what="database") == page.value("redrive_up", what="management") == 0

    eventually(both_away, 60, "neither answers, and the page says so")
    assert min(took) < 1.5  # the page waits for none of them: they are given up after 3 s and 2 s
    scene.database.resume()
    scene.management.resume()
    back = {"database": 1, "management": 1}
    eventually(
        lambda: {what: scrape(scene.api).value("redrive_up", what=what) for what in back} == back,
        60,
        "both are back",
    )
