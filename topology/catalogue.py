"""The sample catalogue: five work queues, and the jobs that may be submitted to them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from topology.spec import JobType, Topology, WorkQueue

Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\-]+$", min_length=1, max_length=100)]
Cents = Annotated[int, Field(gt=0, le=10**12)]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
# Enough to catch a slip; whether an address exists only a sent mail tells.
Email = Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$", max_length=254)]


class Payload(BaseModel):
    """What every payload shares: no unknown fields, no silent conversion."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CallPaymentApi(Payload):
    payment_id: Key
    amount_cents: Cents
    currency: Currency


class ChargeOrder(Payload):
    order_id: Key
    amount_cents: Cents
    currency: Currency


class SyncInventory(Payload):
    sku: Key


class HandleWebhook(Payload):
    event_id: Key
    kind: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    data: dict[str, Any] = {}


class GenerateReport(Payload):
    report_id: Key
    sections: Annotated[int, Field(ge=1, le=100)] = 3


class SendEmail(Payload):
    email_key: Key
    to: Email
    subject: Annotated[str, StringConstraints(min_length=1, max_length=998)]
    body: str


TOPOLOGY = Topology(
    queues=(
        WorkQueue("payments", description="Calls to the payment provider"),
        WorkQueue("inventory", description="Stock levels, from a rate-limited supplier"),
        WorkQueue("reports", prefetch=1, description="Long jobs: one at a time per process"),
        WorkQueue("webhooks", description="Events that others sent us"),
        WorkQueue("emails", description="Mail to customers"),
    ),
    jobs=(
        JobType("payments.call_payment_api", "payments", CallPaymentApi, "Tell the provider about a payment"),
        JobType("payments.charge_order", "payments", ChargeOrder, "Charge an order, once"),
        JobType("inventory.sync_inventory", "inventory", SyncInventory, "Fetch one stock level"),
        JobType("webhooks.handle_webhook", "webhooks", HandleWebhook, "Work one incoming event"),
        JobType("reports.generate_report", "reports", GenerateReport, "Write a report; its result is a URL"),
        JobType("emails.send_email", "emails", SendEmail, "Send one mail, once"),
    ),
)
