"""Settings of callbacks, for the API, which takes them, and the dead-letter consumer, which sends them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from outbound.allowed import Allowed
from outbound.reach import Reach

MOST_SECRETS = 2


class CallbackSettings(BaseSettings):
    """Without a secret no callback is taken and none is sent. Built in entry points only."""

    model_config = SettingsConfigDict(
        env_prefix="REDRIVE_CALLBACK_", env_file=".env", extra="ignore", frozen=True
    )

    secret: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), description="key of the signature; a new and an old one, separated by a space"
    )
    allow: Allowed = Field(
        default=(), description="addresses, networks and host names that may be called though not public"
    )
    timeout_s: float = Field(default=10.0, gt=0, le=60, description="for each step of one delivery")
    retention_days: float = Field(
        default=30.0, gt=0, le=36_500, description="delivered callbacks go so long after"
    )

    @field_validator("secret", mode="before")
    @classmethod
    def _split_on_spaces(cls, value: object) -> object:
        return tuple(value.split()) if isinstance(value, str) else value

    @field_validator("secret")
    @classmethod
    def _are_not_many(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if len(value) > MOST_SECRETS:
            raise ValueError(f"has {len(value)} secrets; one, or two while one replaces the other")
        return value

    @property
    def reach(self) -> Reach:
        return Reach.allowing(self.allow)

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(secret.get_secret_value() for secret in self.secret)
