"""Celery's worker program with our pools."""

from __future__ import annotations

from typing import Any

import click
from celery.apps.worker import Worker
from celery.utils.text import str_to_list

from topology import exits
from workers import pools


class RedriveWorker(Worker):
    """`app.Worker` of a `Redrive` app."""

    pool_cls: Any

    def setup_queues(self, include: Any, exclude: Any = None) -> None:
        """Celery's, whose advice for an unknown queue is a setting that we refuse."""
        known = sorted(self.app.amqp.queues)
        for queue in (*str_to_list(include or ()), *str_to_list(exclude or ())):
            if queue not in known:
                there = ", ".join(known)
                click.echo(f"-Q or -X: queue {queue!r} is not in the topology; there are: {there}", err=True)
                raise SystemExit(exits.USAGE)
        super().setup_queues(include, exclude)

    def on_init_blueprint(self) -> None:
        self.pool_cls = pools.ours(self.pool_cls)
        super().on_init_blueprint()
