"""Celery's worker program with our pools."""

from __future__ import annotations

from typing import Any

from celery.apps.worker import Worker

from workers import pools


class RedriveWorker(Worker):
    """`app.Worker` of a `Redrive` app."""

    pool_cls: Any

    def on_init_blueprint(self) -> None:
        self.pool_cls = pools.ours(self.pool_cls)
        super().on_init_blueprint()
