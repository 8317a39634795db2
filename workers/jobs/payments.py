"""Calls to a payment provider."""

from __future__ import annotations

from typing import Any

from storage.samples import INSERT_CHARGE
from workers.app import app, third_party
from workers.errors import AlreadyDone
from workers.jobs.thirdparty import RateLimitedError, TransientError
from workers.task import RedriveTask


@app.task(
    bind=True,
    name="payments.call_payment_api",
    autoretry_for=(TransientError, RateLimitedError),
    retry_backoff=True,
    retry_backoff_max=600,
    retry_jitter=True,
    max_retries=5,
)
def call_payment_api(self: RedriveTask, payment_id: str, amount_cents: int, currency: str) -> dict[str, Any]:
    """Tell the provider about a payment. Safe to repeat: the provider knows the payment by its id."""
    body = {"payment_id": payment_id, "amount_cents": amount_cents, "currency": currency}
    return third_party().post("/payments", body, key=payment_id)


@app.task(
    bind=True,
    name="payments.charge_order",
    autoretry_for=(TransientError, RateLimitedError),
    retry_backoff=True,
    retry_backoff_max=600,
    retry_jitter=True,
    max_retries=5,
)
def charge_order(self: RedriveTask, order_id: str, amount_cents: int, currency: str) -> dict[str, Any]:
    """Charge an order once, however often it is submitted and however often this runs.

    The provider gets the effect's key, so that a repeated request is the same charge; our own row of it and
    the key commit together.
    """
    key = f"charge:{order_id}"
    try:
        with self.once(key) as tx:
            body = {"order_id": order_id, "amount_cents": amount_cents, "currency": currency}
            charge = third_party().post("/charges", body, key=key)
            reference = str(charge.get("id", key))
            tx.execute(INSERT_CHARGE, order_id, amount_cents, currency, reference, self.request.id)
            tx.store({"reference": reference})
    except AlreadyDone as done:
        return {
            "order_id": order_id,
            "charged": False,
            **(done.result if isinstance(done.result, dict) else {}),
        }
    return {"order_id": order_id, "charged": True, "reference": reference}
