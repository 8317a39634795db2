"""`/metrics` of `dlq consume`."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, order, plain
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.receiver import receiver
from tests.support.scraped import scrape
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def test_letters_replays_and_alerts_are_counted_also_by_one_that_stands_by_or_has_no_database(
    graveyard: Graveyard, proxy: Callable[..., TcpProxy]
) -> None:
    database, port, other = proxy(graveyard.database.url), free_port(), free_port()
    with receiver() as taking:
        consumer = graveyard.start(
            REDRIVE_DATABASE_URL=database.url,
            REDRIVE_DLQ_METRICS_PORT=str(port),
            REDRIVE_ALERT_WEBHOOK_URL=f"http://127.0.0.1:{taking.port}/",
            REDRIVE_ALERT_WEBHOOK_SECRET="s",
            REDRIVE_ALERT_ALLOW="127.0.0.1",
        )
        url = f"http://127.0.0.1:{port}/metrics"
        letters_replays_and_alerts(graveyard, url)
    graveyard.start(ready=False, REDRIVE_DLQ_METRICS_PORT=str(other)).wait_for_log("standing by")
    assert scrape(f"http://127.0.0.1:{other}/metrics").value("redrive_draining", dlq="orders.dlq") == 0
    database.refuse()

    def away() -> bool:
        page = scrape(url)
        assert page.value("redrive_drained_letters_total", dlq="orders.dlq", result="stored") == 2
        assert page.value("redrive_draining", dlq="orders.dlq") == 0
        return page.value("redrive_up", what="database") == 0

    eventually(away, 40, "it says that the database is away")
    database.resume()
    eventually(lambda: scrape(url).value("redrive_up", what="database") == 1, 40, "and that it is back")
    assert consumer.terminate() == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def letters_replays_and_alerts(graveyard: Graveyard, url: str) -> None:
    graveyard.failed_job("a", "x.py")
    graveyard.bury("orders", order("a"))
    graveyard.bury("orders", plain())
    first, _ = graveyard.until_stored(2)
    done = graveyard.dlq_here("replay", str(first["id"]), "--note", "n", "--no-wait")
    assert done.exit_code == 0, done.output

    def counted() -> bool:
        page = scrape(url)
        assert page.value("redrive_drained_letters_total", dlq="orders.dlq", result="stored") == 2
        assert page.value("redrive_replayed_letters_total", result="published") == 1
        assert page.value("redrive_alert_deliveries_total", channel="webhook", result="delivered") == 2
        assert page.value("redrive_draining", dlq="orders.dlq") == 1
        assert page.value("redrive_dead_letters", queue="orders", reason="exception", state="replayed") == 1
        assert sum(page.found("redrive_dead_letters", queue="orders", state="open")) == 1
        assert 0 < page.value("redrive_dead_letter_oldest_undecided_age_seconds") < 600
        assert page.value("redrive_replays", state="running") == 1
        assert page.value("redrive_queue_messages", queue="orders", state="ready") == 1
        assert page.value("redrive_queue_consumers", queue="orders.dlq") == 1
        assert page.found("redrive_alerts_pending") == []
        return page.found("redrive_up") == [1, 1]

    eventually(counted, 40, "everything is told")
