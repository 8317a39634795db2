"""What is sent, how it is signed, and when it is sent again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr, ValidationError

from dev.sink.signature import BadSignatureError, verify
from dlq_consumer.alert_message import as_json, text, title
from dlq_consumer.alerting import retry_in_s
from dlq_consumer.channels.configured import WrongChannelError, channels_of
from dlq_consumer.settings import AlertSettings, SentrySettings
from outbound.signature import sign
from storage.alerts import Alert

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
NO_SENTRY = SentrySettings(_env_file=None, sentry_dsn=None)  # type: ignore[call-arg]


def test_the_signature_is_hmac_sha256_over_time_and_body() -> None:
    # printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac hush
    assert sign(["hush"], b'{"a":1}', at=1_700_000_000) == (
        "t=1700000000,v1=7cfd1df542c33ab7251748ffdc6e7fed278c63b83d4ece95a4534b0ad465571b"
    )


def test_two_secrets_sign_side_by_side_and_a_receiver_of_either_takes_it() -> None:
    both = sign(["new", "old"], b"x", at=1_700_000_000)
    for secret in ("new", "old"):
        verify(both, b"x", secret, 1_700_000_000)
    with pytest.raises(BadSignatureError):
        verify(both, b"x", "older", 1_700_000_000)


def test_another_time_or_body_is_another_signature() -> None:
    made = {sign(["hush"], body, at=at) for body in (b"a", b"b") for at in (1, 2)}
    assert len(made) == 4


def test_the_pauses_double_up_to_five_minutes() -> None:
    assert [retry_in_s(tries) for tries in (1, 2, 3, 4, 9, 10, 400)] == [1, 2, 4, 8, 256, 300, 300]


ALERT = Alert(
    "id", "f", "first_seen", 7, None, WHEN, 1,
    "f", "q", "t", "exception", "ValueError", "a.py:f", 3, WHEN, WHEN,
)  # fmt: skip


def test_the_body_names_the_group() -> None:
    assert as_json(ALERT, WHEN) == {
        "id": "id",
        "kind": "first_seen",
        "subject": "f",
        "title": "Redrive: a new group of dead letters: ValueError in t, queue q",
        "detail": None,
        "group": {
            "fingerprint": "f",
            "queue": "q",
            "task": "t",
            "reason": "exception",
            "exception_type": "ValueError",
            "top_frame": "a.py:f",
            "letters": 3,
            "first_seen": WHEN.isoformat(),
            "last_seen": WHEN.isoformat(),
        },
        "letter_id": 7,
        "raised_at": WHEN.isoformat(),
        "sent_at": WHEN.isoformat(),
    }


def test_of_what_is_no_group_the_body_names_the_subject() -> None:
    alert = Alert("id", "oldest_undecided", "oldest_undecided", 7, "letter 7 has waited", WHEN, 1)
    body = as_json(alert, WHEN)
    assert (body["group"], body["subject"], body["detail"]) == (
        None,
        "oldest_undecided",
        "letter 7 has waited",
    )
    assert text(alert).splitlines() == ["detail: letter 7 has waited", "letter: dlq show 7", "alert: id"]


def test_a_name_in_a_letter_adds_no_line_to_a_title_or_text() -> None:
    alert = replace(ALERT, task="t\nBcc: everyone@example.com", exception_type="E\x1b[31m")
    assert "\n" not in title(alert)
    assert "\x1b" not in title(alert) + text(alert)
    assert not any(line.startswith("Bcc") for line in text(alert).splitlines())


@pytest.mark.parametrize("secret", [None, SecretStr("")])
def test_a_webhook_without_a_secret_is_refused(secret: SecretStr | None) -> None:
    with pytest.raises(ValidationError, match="REDRIVE_ALERT_WEBHOOK_SECRET"):
        AlertSettings(_env_file=None, webhook_url=SecretStr("http://h/"), webhook_secret=secret)  # type: ignore[call-arg]


def test_a_webhook_url_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="webhook_url"):
        AlertSettings(_env_file=None, webhook_url=SecretStr("ftp://h/"), webhook_secret=SecretStr("s"))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/secret", "https://[::1]/secret", "http://hooks.example/secret"]
)
def test_a_webhook_that_is_not_public_must_be_allowed(url: str) -> None:
    def settings(allow: str) -> AlertSettings:
        return AlertSettings(_env_file=None, webhook_url=url, webhook_secret="s", allow=allow)  # type: ignore[call-arg, arg-type]

    with pytest.raises(WrongChannelError, match="REDRIVE_ALERT_ALLOW") as refused:
        channels_of(settings("10.0.0.0/8" if "example" not in url else ""), NO_SENTRY)
    assert str(refused.value).startswith("REDRIVE_ALERT_WEBHOOK_URL: ")
    assert "secret" not in str(refused.value)
    (channel,) = channels_of(settings("127.0.0.1, ::1, hooks.example"), NO_SENTRY)
    assert channel.name == "webhook"


def test_what_cannot_be_allowed_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="host bits"):
        AlertSettings(_env_file=None, allow="10.0.0.1/8")  # type: ignore[call-arg, arg-type]
