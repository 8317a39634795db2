"""Mail to customers, with a log of what was sent."""

from __future__ import annotations

from typing import Any

from storage import samples
from workers import loop
from workers.app import app, third_party
from workers.jobs.thirdparty import RateLimitedError, TransientError
from workers.task import RedriveTask


@app.task(
    bind=True,
    name="emails.send_email",
    autoretry_for=(TransientError, RateLimitedError),
    retry_backoff=True,
    retry_backoff_max=600,
    max_retries=5,
)
def send_email(self: RedriveTask, email_key: str, to: str, subject: str, body: str) -> dict[str, Any]:
    """Send a mail once per key.

    The log says `sending` before and `sent` after. An attempt that finds `sending` cannot know whether the
    mail went out: it sends again under the same Idempotency-Key, and the mail service drops what it has had.
    """
    if samples.begin_email(loop.database(), email_key, self.request.id) == "sent":
        return {"email_key": email_key, "sent": False}
    mail = {"to": to, "subject": subject, "body": body}
    third_party().post("/emails", mail, key=email_key)
    samples.mark_email_sent(loop.database(), email_key)
    return {"email_key": email_key, "sent": True}
