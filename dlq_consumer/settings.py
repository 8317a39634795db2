"""Settings of the dead-letter consumer alone."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AliasChoices, Field, HttpUrl, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from outbound.allowed import Allowed
from outbound.reach import Reach
from topology.prometheus.ports import Ports
from topology.redaction import FieldPath, parse_paths


class ConsumerSettings(BaseSettings):
    """How letters are drained and replayed. Built in the entry point only."""

    model_config = SettingsConfigDict(env_prefix="REDRIVE_DLQ_", env_file=".env", extra="ignore", frozen=True)

    prefetch: int = Field(default=3_000, ge=1, le=10_000, description="unsettled letters held per queue")
    held_mib: int = Field(
        default=64, ge=4, le=16_384, description="unsettled letters of all queues: MiB in memory"
    )
    batch_letters: int = Field(default=750, ge=1, le=5_000, description="letters per transaction at most")
    batch_ms: int = Field(default=50, ge=0, le=5_000, description="wait for a batch to fill")
    metrics_port: Ports = Field(
        default="0", description="port of /metrics, or a range of which the first free one is taken; 0: none"
    )
    metrics_host: str = Field(default="127.0.0.1", description="address that /metrics is served at")
    foreign_outcome_s: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="after that the outcome of a replayed message not ours is unknown",
    )

    consumed_s: float = Field(
        default=10.0,
        gt=0,
        le=3_600,
        description="a queue seen empty for so long has consumed the replayed messages that are not ours",
    )

    @model_validator(mode="after")
    def _can_fill_a_batch(self) -> Self:
        if self.batch_letters > self.prefetch:
            raise ValueError(
                f"REDRIVE_DLQ_BATCH_LETTERS is {self.batch_letters}; it must not be over "
                f"REDRIVE_DLQ_PREFETCH ({self.prefetch})"
            )
        return self


class KeepingSettings(BaseSettings):
    """What of a letter is stored, and for how long."""

    model_config = SettingsConfigDict(env_prefix="REDRIVE_", env_file=".env", extra="ignore", frozen=True)

    redact: str = Field(default="", description="paths of fields whose values are never stored")
    retention_days: float | None = Field(
        default=None, gt=0, le=36_500, description="decided letters go so long after the decision"
    )
    retention_batch: int = Field(default=500, ge=1, le=10_000, description="letters per transaction at most")
    alert_retention_days: float | None = Field(
        default=None, gt=0, le=36_500, description="alerts that are not to be sent any more go so long after"
    )

    @field_validator("redact")
    @classmethod
    def _are_paths(cls, value: str) -> str:
        parse_paths(value)
        return value

    @property
    def redacted(self) -> tuple[FieldPath, ...]:
        return parse_paths(self.redact)


class AlertSettings(BaseSettings):
    """What alerts, and where alerts go. Without a channel they are only written down."""

    model_config = SettingsConfigDict(
        env_prefix="REDRIVE_ALERT_", env_file=".env", extra="ignore", frozen=True
    )

    webhook_url: SecretStr | None = Field(default=None, description="gets a signed POST for each alert")
    webhook_secret: SecretStr | None = Field(default=None, description="key of the signature")
    silence_seconds: float = Field(
        default=3600.0, gt=0, le=31_536_000, description="after so long without a letter a group alerts again"
    )
    allow: Allowed = Field(
        default=(),
        description="addresses, networks and host names that may be called though not public",
    )
    timeout_s: float = Field(default=10.0, gt=0, le=60, description="for one delivery")
    apprise_urls: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), description="Apprise's URLs, separated by spaces; each is a channel"
    )
    rate_letters: int = Field(
        default=100, ge=0, le=100_000_000, description="letters of a group in the window alert; 0: never"
    )
    rate_seconds: float = Field(default=300.0, ge=1, le=86_400, description="the window")
    no_consumer_s: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="a queue without a consumer for so long alerts, 10 at least; 0: never",
    )
    oldest_s: float = Field(
        default=86_400.0,
        ge=0,
        le=31_536_000,
        description="a letter undecided for so long alerts; 0: never",
    )

    @field_validator("no_consumer_s")
    @classmethod
    def _is_longer_than_statistics_are_old(cls, value: float) -> float:
        if 0 < value < 10:
            raise ValueError(f"is {value:g}; the broker's statistics are 5 s old: 10 at least, or 0")
        return value

    @field_validator("apprise_urls", mode="before")
    @classmethod
    def _split_on_spaces(cls, value: object) -> object:
        return tuple(value.split()) if isinstance(value, str) else value

    @property
    def reach(self) -> Reach:
        return Reach.allowing(self.allow)

    @field_validator("webhook_url")
    @classmethod
    def _is_an_http_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            HttpUrl(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _signs_what_it_sends(self) -> Self:
        if self.webhook_url is not None and not (
            self.webhook_secret and self.webhook_secret.get_secret_value()
        ):
            raise ValueError("REDRIVE_ALERT_WEBHOOK_URL is set: set REDRIVE_ALERT_WEBHOOK_SECRET too")
        return self


class SentrySettings(BaseSettings):
    """A Sentry project that gets alerts."""

    model_config = SettingsConfigDict(
        env_prefix="REDRIVE_", env_file=".env", extra="ignore", frozen=True, populate_by_name=True
    )

    sentry_dsn: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("REDRIVE_SENTRY_DSN", "SENTRY_DSN"),
        description="gets an event for each alert",
    )

    @field_validator("sentry_dsn")
    @classmethod
    def _empty_is_none(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is not None and value.get_secret_value() else None
