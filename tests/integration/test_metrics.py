"""`/metrics` of real processes: what Prometheus is told, also while servers are away."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import httpx

from tests.support.databases import ROOT
from tests.support.ports import free_port
from tests.support.promtool import promtool
from tests.support.proxy import TcpProxy
from tests.support.receiver import receiver
from tests.support.scraped import Page, scrape
from tests.support.stack import Stack
from tests.support.waiting import eventually

MakeProxy = Callable[..., TcpProxy]
CHARGE = {"order_id": "o-1", "amount_cents": 100, "currency": "EUR"}


def test_the_api_tells_what_waits_and_for_how_long(stack: Stack) -> None:
    stack.apply_topology()
    stack.start_api(REDRIVE_API_METRICS_PUBLIC="true")
    for number in range(3):
        stack.submit("payments.charge_order", CHARGE, f"k{number}")
    eventually(lambda: stack.depth("payments") == 3, 20, "all are published")
    stack.database.execute("update redrive.jobs set queued_at = now() - interval '1 hour'")
    stack.publish("payments.dlq", b"x")
    url = f"{stack.http.base_url}/metrics"

    def told() -> bool:
        page = scrape(url)
        assert page.value("redrive_jobs", queue="payments", state="QUEUED") == 3
        assert 3600 <= page.value("redrive_queue_oldest_message_age_seconds", queue="payments") < 7200
        assert page.value("redrive_queue_oldest_message_age_seconds", queue="emails") == 0
        assert page.value("redrive_queue_messages", queue="payments", state="ready") == 3
        assert page.value("redrive_queue_messages", queue="payments.dlq", state="ready") == 1
        assert page.value("redrive_queue_consumers", queue="payments") == 0
        assert page.value("redrive_outbox_messages", queue="payments") == 0
        assert page.value("redrive_outbox_oldest_age_seconds", queue="payments") == 0
        assert page.value("redrive_relay_messages_total", answer="confirmed") == 3
        assert page.value("redrive_up", what="broker") == 1
        assert page.value("redrive_up", what="database") == 1
        return page.value("redrive_up", what="management") == 1

    eventually(told, 30, "the page tells it all")


def test_the_api_tells_what_it_knows_while_servers_are_away(stack: Stack, proxy: MakeProxy) -> None:
    stack.apply_topology()
    database, management = proxy(stack.database.url), proxy(stack.vhost.management_url)
    stack.start_api(
        REDRIVE_API_METRICS_PUBLIC="true",
        REDRIVE_DATABASE_URL=database.url,
        REDRIVE_MANAGEMENT_URL=management.url,
        REDRIVE_API_DATABASE_TIMEOUT_S="3",
    )
    url = f"{stack.http.base_url}/metrics"
    eventually(lambda: scrape(url).value("redrive_up", what="database") == 1, 20, "all are there")
    database.hold()
    management.hold()
    held = []

    def both_away() -> bool:
        began = time.monotonic()
        page = scrape(url)
        held.append(time.monotonic() - began)
        assert page.value("redrive_figures_age_seconds", part="jobs") > 5
        return page.value("redrive_up", what="database") == page.value("redrive_up", what="management") == 0

    eventually(both_away, 40, "neither answers, and the page says so")
    assert min(held) < 1.5  # the page waits for none of them: they are given up after 3 s and 2 s
    database.resume()
    management.resume()
    eventually(
        lambda: scrape(url).value("redrive_up", what="database") == 1, 40, "the database is back",
        ignoring=(httpx.HTTPError,),
    )  # fmt: skip


def spoken_of() -> dict[str, set[str]]:
    """Metrics of the alert rules, and the labels that are asked of them."""
    text = (ROOT / "docs" / "prometheus" / "redrive.rules.yml").read_text()
    found: dict[str, set[str]] = {}
    for name, selector in re.findall(r"(redrive_[a-z_]+)(?:\{([^}]*)\})?", text):
        found.setdefault(name, set()).update(re.findall(r"([a-z]+)[!=]", selector))
    return found


def test_every_metric_that_an_alert_rule_speaks_of_is_told_by_real_processes(stack: Stack) -> None:
    stack.apply_topology()
    ports = {"worker": free_port(), "dlq": free_port()}
    with receiver() as refusing:
        refusing.failing = [500] * 100
        stack.start_api(REDRIVE_API_METRICS_PUBLIC="true")
        stack.start_worker(REDRIVE_WORKER_METRICS_PORT=str(ports["worker"]))
        stack.start_consumer(
            REDRIVE_DLQ_METRICS_PORT=str(ports["dlq"]),
            REDRIVE_ALERT_WEBHOOK_URL=f"http://127.0.0.1:{refusing.port}/",
            REDRIVE_ALERT_WEBHOOK_SECRET="s",
            REDRIVE_ALERT_ALLOW="127.0.0.1",
        )
        stack.submit("payments.charge_order", CHARGE | {"order_id": "poison"}, "k")
        stack.publish("payments", b"no json")
        urls = [f"http://127.0.0.1:{port}/metrics" for port in ports.values()]
        urls.append(f"{stack.http.base_url}/metrics")

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
