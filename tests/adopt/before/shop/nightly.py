"""What cron starts at night: `python -m shop.nightly`. Prints what came back."""

import json
from datetime import UTC, datetime, timedelta

from celery import chain, group

from shop.app import app
from shop.tasks import mails, orders, reports


def main():
    soon = datetime.now(UTC) + timedelta(seconds=2)
    pending = {
        "reserve": orders.reserve.delay("o-1"),
        "charge": orders.charge.delay("o-2", cents=500),
        "report": reports.nightly.delay("2026-11-30"),
        "by name": app.send_task("shop.tasks.orders.price", (2, 300)),
        "later": orders.price.apply_async((3, 100), countdown=2),
        "at": orders.price.apply_async((4, 100), eta=soon),
        "chain": chain(orders.price.s(2, 500), orders.with_tax.s(percent=10))(),
        "group": group(orders.price.s(number, 100) for number in range(3))(),
        "linked": orders.price.apply_async((1, 700), link=orders.note.s(order="o-3")),
        "remind": mails.remind.delay("ada@example.org"),
    }
    mails.send.delay("bob@example.org", subject="hello")
    print(json.dumps({name: result.get(timeout=60) for name, result in pending.items()}))


if __name__ == "__main__":
    main()
