"""Settings about Postgres, shared by every process."""

from __future__ import annotations

from typing import Self

from pydantic import Field, PostgresDsn, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class StorageSettings(BaseSettings):
    """Where Postgres is. Built in entry points only.

    Raises:
        pydantic.ValidationError: a variable is missing or wrong; it names the field.
    """

    model_config = SettingsConfigDict(env_prefix="REDRIVE_", env_file=".env", extra="ignore", frozen=True)

    database_url: SecretStr = Field(description="postgresql://user:password@host:port/database")
    database_pool_min: int = Field(default=1, ge=0, le=100, description="connections kept open")
    database_pool_max: int = Field(default=10, ge=1, le=100, description="connections at most")
    database_timeout_s: float = Field(
        default=5.0, gt=0, le=60, description="to connect, or to get a connection"
    )

    @field_validator("database_url")
    @classmethod
    def _is_a_postgres_url(cls, value: SecretStr) -> SecretStr:
        url = PostgresDsn(value.get_secret_value())
        if url.scheme not in ("postgresql", "postgres"):  # SQLAlchemy's scheme+driver is not asyncpg's
            raise ValueError(f"the scheme is {url.scheme}; it must be postgresql")
        if not url.path or url.path == "/":
            raise ValueError("names no database: it should end in /<database>")
        return value

    @model_validator(mode="after")
    def _keeps_no_more_than_it_may(self) -> Self:
        if self.database_pool_min > self.database_pool_max:
            raise ValueError(
                f"REDRIVE_DATABASE_POOL_MIN is {self.database_pool_min}; it must not be over "
                f"REDRIVE_DATABASE_POOL_MAX ({self.database_pool_max})"
            )
        return self

    @property
    def dsn(self) -> str:
        """The URL with its password: for the driver, never for a log."""
        return self.database_url.get_secret_value()
