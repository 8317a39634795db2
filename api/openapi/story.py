"""What all examples tell of: the provider refuses a charge, an operator has that mended and replays it."""

from __future__ import annotations

SUBMITTER, OPERATOR, OPERATOR_KEY = "shop", "ops", "3f9a01bc"
CAME_FROM = "10.2.0.7"
QUEUE, TASK, WORKER = "payments", "payments.charge_order", "celery@worker-1"
JOB, SECOND_JOB = "6f1c7f0e-3b52-4a56-9a43-6d2f2f1b7c11", "f0a4f0d6-6a51-4f0e-8f0c-0b7f8a2f9d35"
LETTER, NEXT_LETTER = 17, 18
GROUP = "3f9ac2d07be14f6688a1c5d2e4b7f093"
OTHER_GROUP = "3fb07c15e2d94a0c8b6f1d3a5e7c9024"
REPLAY, TOKEN = "a6f0c1d2-7f3e-4a8b-9b1c-2d3e4f5a6b7c", "5b0d3c9e-8a17-4e62-a4d5-9c1f7e2b8a60"
ALERT, TEST_ALERT = "c2d1b6a4-90ef-4f7d-8e55-1f6b3a2c4d5e", "0e9d8c7b-6a5f-4e3d-9c2b-1a0f9e8d7c6b"
CALLBACK, SECOND_CALLBACK = "9d8c7b6a-5f4e-4d3c-8b2a-190f8e7d6c5b", "1b2c3d4e-5f60-4718-8293-a4b5c6d7e8f9"
SHOWN_URL = "https://shop.example.com/…"
PAYLOAD = {"order_id": "o-1", "amount_cents": 1999, "currency": "EUR"}
RESULT = {"order_id": "o-1", "charged": True, "reference": "ch_81"}
DEATH = "POST /charges: 400"
EXCEPTION = "workers.jobs.thirdparty.PermanentError"
TRACEBACK = (
    "Traceback (most recent call last):\n  …\nworkers.jobs.thirdparty.PermanentError: POST /charges: 400\n"
)
WHY = "the provider has enabled EUR"


def at(clock: str) -> str:
    """A time of that day, such as `12:00:00.05`."""
    return f"2027-01-31T{clock}+00:00"


ACCEPTED, QUEUED = at("12:00:00.000214"), at("12:00:00.012961")
STARTED, DIED = at("12:00:00.051883"), at("12:00:00.408770")
DEAD_AT, STORED = at("12:00:00"), at("12:00:00.517302")
REPLAYED, SENT = at("12:30:00.114058"), at("12:30:00.630911")
STARTED_AGAIN, SUCCEEDED = at("12:30:00.688412"), at("12:30:01.027655")
DECIDED, SLOW = at("12:30:01.031702"), "the provider is slow"
IN_A_WEEK = "2027-02-07T00:00:00+00:00"
