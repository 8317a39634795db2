"""`/metrics` of a worker: a step of Celery's worker, so that it is there with any way to start one."""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.worker.components import Pool

from topology.prometheus.ports import parse_ports
from topology.prometheus.serving import MetricsServer, serve


class Exposing(bootsteps.StartStopStep):
    """Serves from before the first connection until the last job has ended.

    A port that another process has is said in the log; the worker works all the same.
    """

    requires = (Pool,)  # the first pool processes are made before the port is taken

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._server: MetricsServer | None = None

    def start(self, worker: Any) -> None:
        settings, consumer = worker.app.environment.worker, worker.consumer
        self._server = serve(
            settings.metrics_host, parse_ports(settings.metrics_port), lambda: consumer.figures.page(consumer)
        )

    def stop(self, worker: Any) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    terminate = stop
