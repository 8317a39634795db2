"""The shop's own unit tests: no broker, everything eager."""

import pytest

from shop.app import app
from shop.tasks import mails, orders, reports


@pytest.fixture(autouse=True)
def _eager(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_JOURNAL", str(tmp_path / "journal"))
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


def test_price():
    assert orders.price(2, 3) == 6
    assert orders.price.delay(2, 3).get() == 6


def test_reserve_tries_again():
    assert orders.reserve.delay("o-1").get() == {"order": "o-1", "retries": 1}


def test_charge_tries_again():
    assert orders.charge.delay("o-1", cents=5).get() == 5


def test_a_bug_is_a_failure():
    with pytest.raises(KeyError):
        orders.broken.delay("o-1").get()


def test_report():
    assert reports.nightly.delay("today").get() == "report of today"


def test_chain_and_mail():
    assert (orders.price.s(1, 100) | orders.with_tax.s()).delay().get() == 120
    assert mails.send.delay("a@example.org", "s").successful()
