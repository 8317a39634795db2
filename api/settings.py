"""Settings of the API process."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ApiSettings(BaseSettings):
    """What only the API needs to know. Built in entry points only.

    Raises:
        pydantic.ValidationError: a variable is wrong; it names the field.
    """

    model_config = SettingsConfigDict(env_prefix="REDRIVE_API_", env_file=".env", extra="ignore", frozen=True)

    docs: bool = Field(default=False, description="serve /docs and /openapi.json, without a key")
    metrics_public: bool = Field(default=False, description="serve /metrics without a key")
    # In the message a character may take three times its bytes (as escapes), and RabbitMQ 4 takes 16 MiB.
    body_limit: int = Field(
        default=1_048_576, ge=1_024, le=5_242_880, description="bytes of a request's body"
    )
    batch_body_limit: int = Field(
        default=8_388_608, ge=1_024, le=67_108_864, description="bytes of the body of a batch of jobs"
    )
    body_timeout_s: float = Field(
        default=30.0, gt=0, le=600, description="seconds that a request's body may take to come"
    )
    idempotency_retention_s: float = Field(
        default=604_800,
        ge=3_600,
        le=31_622_400,
        description="seconds that a key is kept at least",
    )
    database_timeout_s: float = Field(
        default=5.0, gt=0, le=60, description="seconds until a request gives up"
    )
    outbox_limit: int = Field(
        default=1_000_000, ge=1, le=1_000_000_000, description="messages that wait before jobs are refused"
    )
    audit_retention_days: float | None = Field(
        default=None, ge=1, le=36_600, description="days that the audit is kept; unset: for ever"
    )
    # In each API process: a shared count would cost each request a round trip.
    rate_per_s: float = Field(
        default=1_000, ge=0, lt=1e9, description="requests a second of one caller; 0: no limit"
    )
    rate_burst: int = Field(default=2_000, ge=1, le=10**9, description="requests of one caller at once")
    unknown_keys_per_min: int = Field(
        default=60, ge=1, le=1_000_000, description="unknown keys from one address"
    )
    relay_batch: int = Field(default=200, ge=1, le=5_000, description="messages published at a time")
    relay_poll_s: float = Field(
        default=1.0, gt=0, le=60, description="seconds between looks at the outbox that nothing asked for"
    )
    publish_timeout_s: float = Field(
        default=10.0, gt=0, le=120, description="seconds until a confirm is given up"
    )
