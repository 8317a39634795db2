"""The shop's Celery app."""

import os

from celery import Celery
from kombu import Queue

app = Celery(
    "shop",
    broker=os.environ.get("SHOP_BROKER", "amqp://guest:guest@localhost//"),
    include=["shop.tasks.orders", "shop.tasks.mails", "shop.tasks.reports", "shop.signals"],
)

app.conf.update(
    result_backend="rpc://",
    task_queues=[Queue("orders"), Queue("mails")],
    task_default_queue="orders",
    task_routes={
        "shop.tasks.mails.*": {"queue": "mails"},
        "reports.*": {"queue": "mails"},
    },
    task_time_limit=300,
    task_soft_time_limit=240,
    worker_prefetch_multiplier=2,
    timezone="UTC",
)
