"""The channels that the settings name."""

from __future__ import annotations

from dlq_consumer.channels.channel import Channel
from dlq_consumer.settings import AlertSettings, SentrySettings

# Each channel is imported where a setting names it: Apprise and httpx would hold up every command otherwise.


class WrongChannelError(ValueError):
    """A setting names a channel that cannot be. Quotes no secret."""


def channels_of(alerts: AlertSettings, sentry: SentrySettings) -> tuple[Channel, ...]:
    """In the order webhook, Apprise, Sentry.

    Raises:
        WrongChannelError: names the setting.
    """
    found: list[Channel] = []
    url, secret = alerts.webhook_url, alerts.webhook_secret
    if url is not None and secret is not None:
        from dlq_consumer.channels.webhook import Webhook

        try:
            found.append(
                Webhook(url.get_secret_value(), secret.get_secret_value(), alerts.timeout_s, alerts.reach)
            )
        except ValueError as error:
            raise WrongChannelError(f"REDRIVE_ALERT_WEBHOOK_URL: {error}") from None
    if alerts.apprise_urls:
        from dlq_consumer.channels.apprise_url import AppriseUrl

        try:
            for number, url in enumerate(alerts.apprise_urls, start=1):
                found.append(AppriseUrl(url.get_secret_value(), number, alerts.timeout_s, alerts.reach))
        except ValueError as error:
            raise WrongChannelError(f"REDRIVE_ALERT_APPRISE_URLS: {error}") from None
    if sentry.sentry_dsn is not None:
        from dlq_consumer.channels.sentry import Dsn, Sentry

        try:
            dsn = Dsn.parse(sentry.sentry_dsn.get_secret_value())
            found.append(Sentry(dsn, alerts.timeout_s, alerts.reach))
        except ValueError as error:
            raise WrongChannelError(f"REDRIVE_SENTRY_DSN: {error}") from None
    return tuple(found)
