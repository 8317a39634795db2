"""Settings of the dead-letter consumer alone."""

from __future__ import annotations

from typing import Self

from pydantic import Field, HttpUrl, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ConsumerSettings(BaseSettings):
    """How letters are drained and replayed. Built in the entry point only."""

    model_config = SettingsConfigDict(env_prefix="REDRIVE_DLQ_", env_file=".env", extra="ignore", frozen=True)

    prefetch: int = Field(default=500, ge=1, le=10_000, description="unsettled letters held per queue")
    held_mib: int = Field(
        default=64, ge=4, le=16_384, description="unsettled letters of all queues: MiB in memory"
    )
    batch_letters: int = Field(default=250, ge=1, le=5_000, description="letters per transaction at most")
    batch_ms: int = Field(default=50, ge=0, le=5_000, description="wait for a batch to fill")
    foreign_outcome_s: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="after that the outcome of a replayed message not ours is unknown",
    )

    @model_validator(mode="after")
    def _can_fill_a_batch(self) -> Self:
        if self.batch_letters > self.prefetch:
            raise ValueError(
                f"REDRIVE_DLQ_BATCH_LETTERS is {self.batch_letters}; it must not be over "
                f"REDRIVE_DLQ_PREFETCH ({self.prefetch})"
            )
        return self


class AlertSettings(BaseSettings):
    """Where alerts go. Without a URL they are only written down."""

    model_config = SettingsConfigDict(
        env_prefix="REDRIVE_ALERT_", env_file=".env", extra="ignore", frozen=True
    )

    webhook_url: SecretStr | None = Field(default=None, description="gets a signed POST for each alert")
    webhook_secret: SecretStr | None = Field(default=None, description="key of the signature")
    silence_seconds: float = Field(
        default=3600.0, gt=0, le=31_536_000, description="after so long without a letter a group alerts again"
    )
    timeout_s: float = Field(default=10.0, gt=0, le=60, description="for one delivery")

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
