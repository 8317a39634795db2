"""What a worker tells Prometheus. Its main process hears of each run's begin and end: no child counts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from topology.prometheus.counting import Counter, Histogram
from topology.prometheus.text import gauge, render
from workers.completing import Finished
from workers.entries import Item, Reply, Started

if TYPE_CHECKING:
    from topology.spec import JobType
    from workers.consumer import RedriveConsumer

# Up to the default time limit; a job that takes longer is long.
RUN_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 900)
ATTEMPT_BOUNDS = (1, 2, 3, 5, 10, 20)
# Why a job ended DEAD that did not run here.
ENDED_UNRUN = ("worker_lost", "not publishable")


class WorkerFigures:
    """Filled on the main thread, read by the thread that serves them.

    Labels are bounded: only registered tasks run, only the topology's queues are consumed.
    """

    def __init__(self, jobs: Iterable[JobType]) -> None:
        """Args:
        jobs: of the catalogue; their counters begin at 0 now, those of other tasks with their first run.
        """
        self._attempts = Counter(
            "redrive_attempts_total", "Runs that ended, by how.", ("queue", "task", "outcome")
        )
        self._runs = Histogram("redrive_run_seconds", "How long runs took.", ("task",), RUN_BOUNDS_S)
        self._ended = Counter(
            "redrive_jobs_ended_total", "Jobs that ended, by state.", ("queue", "task", "state")
        )
        self._tries = Histogram(
            "redrive_job_attempts", "Attempts of the jobs that ended.", ("task",), ATTEMPT_BOUNDS
        )
        self._duplicates = Counter(
            "redrive_duplicates_total", "Deliveries of jobs that had ended: acked, not run.", ("queue",)
        )
        self._refused = Counter(
            "redrive_refused_deliveries_total", "Deliveries that no task could take: dead-lettered.",
            ("queue", "reason"),
        )  # fmt: skip
        self._counted = (
            *(self._attempts, self._runs, self._ended),
            *(self._tries, self._duplicates, self._refused),
        )
        self._begun: set[tuple[str, str]] = set()
        for job in jobs:
            self._begin(job.queue, job.name)
        self._beat_at = time.monotonic()

    def _begin(self, queue: str, task: str) -> None:
        """A rate needs a 0 to grow from."""
        if (queue, task) not in self._begun:
            self._begun.add((queue, task))
            for outcome in ("succeeded", "retry", "dead", "crashed"):
                self._attempts.start(queue, task, outcome)
            for state in ("succeeded", "dead"):
                self._ended.start(queue, task, state)

    def beat(self) -> None:
        """The event loop turns."""
        self._beat_at = time.monotonic()

    def handed_over(self, item: Item) -> None:
        """The main thread hands this to the ledger."""
        if isinstance(item, Started):
            item.arrival.began = time.monotonic()
            self._begin(item.arrival.queue.name, item.arrival.task.task)
        elif isinstance(item, Finished):
            arrival, outcome = item.arrival, type(item.outcome).__name__.lower()
            arrival.ended = outcome
            # Else it did not run here: refused before its turn, or another worker ran and counted it. Of a
            # process that was killed at once the begin may not be heard.
            if arrival.began is not None or outcome == "crashed":
                self._attempts.add(arrival.queue.name, arrival.task.task, outcome)
            if arrival.began is not None:
                self._runs.observe(time.monotonic() - arrival.began, arrival.task.task)
                arrival.began = None

    def answered(self, reply: Reply) -> None:
        """The ledger has settled this."""
        arrival = reply.arrival
        if arrival is None:
            return
        queue, task = arrival.queue.name, arrival.task.task
        match reply.kind, reply.detail:
            case "ack", "duplicate":
                self._duplicates.add(queue)
                return
            case "ack", "done":
                state = "succeeded" if arrival.ended == "succeeded" else "cancelled"
            case "reject", reason if arrival.ended or reason in ENDED_UNRUN:
                state = "dead"
            case "reject", reason if reason != "dead":
                self.refused(queue, reason)
                return
            case _:
                return
        self._ended.add(queue, task, state)
        self._tries.observe(arrival.attempt.attempt, task)

    def refused(self, queue: str, reason: str) -> None:
        """A delivery goes to the dead-letter exchange unseen by any task."""
        self._refused.add(queue, reason)

    def page(self, consumer: RedriveConsumer) -> str:
        """All of it, and how this worker is now."""
        now, ledger, worker = time.monotonic(), consumer.ledger, {"worker": consumer.hostname}
        connected = consumer.connection is not None and not consumer.cut
        states = (({"what": "database"}, float(ledger.reached)), ({"what": "broker"}, float(connected)))
        return render(
            [
                gauge("redrive_up", "Whether this process reaches the server.", states),
                gauge(
                    "redrive_worker_heartbeat_age_seconds",
                    "Since a worker renewed its leases in Postgres.",
                    [(worker, now - ledger.renewed_at)],
                ),
                gauge(
                    "redrive_worker_loop_age_seconds",
                    "Since the event loop turned: it does so each second.",
                    [(worker, now - self._beat_at)],
                ),
                gauge(
                    "redrive_worker_jobs",
                    "Jobs that run here or wait for a process of the pool.",
                    [(worker, len(consumer.guard.running()))],
                ),
                gauge(
                    "redrive_worker_unsettled_messages",
                    "Messages and ends of runs that wait for Postgres or the broker.",
                    [(worker, ledger.outstanding)],
                ),
                gauge("redrive_worker_processes", "Size of the pool.", [(worker, ledger.processes)]),
                *(each.family() for each in self._counted),
            ]
        )
