"""Counts in Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from storage.overview import Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[dict[str, str], float]


def render(counts: Overview, broker: str) -> str:
    """All counts as gauges: each is a state at this moment, read from Postgres."""
    return "\n".join(
        [
            *_gauge(
                "redrive_jobs",
                "Jobs by work queue and state.",
                (({"queue": row.queue, "state": row.state}, row.jobs) for row in counts.jobs),
            ),
            *_gauge(
                "redrive_outbox_messages",
                "Accepted and not yet confirmed by the broker.",
                (({"queue": row.queue}, row.messages) for row in counts.outbox),
            ),
            *_gauge(
                "redrive_outbox_refused_messages",
                "Of these, the ones that the broker refused at least once.",
                (({"queue": row.queue}, row.refused) for row in counts.outbox),
            ),
            *_gauge(
                "redrive_outbox_oldest_seconds",
                "Age of the oldest message in the outbox; 0 when it is empty.",
                [({}, max((row.oldest_s for row in counts.outbox), default=0.0))],
            ),
            *_gauge(
                "redrive_dead_letters",
                "Stored dead letters by queue of origin, reason and state.",
                (
                    ({"queue": row.queue, "reason": row.reason, "state": row.state}, row.letters)
                    for row in counts.letters
                ),
            ),
            *_gauge(
                "redrive_dead_letter_groups_open",
                "Groups with undecided letters.",
                [({}, counts.open_groups)],
            ),
            *_gauge("redrive_broker_up", "Whether this process can publish.", [({}, float(broker == "ok"))]),
            "",
        ]
    )


def _gauge(name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escape(found)}"' for label, found in labels.items())
        yield f"{name}{{{inside}}} {value:g}" if inside else f"{name} {value:g}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
