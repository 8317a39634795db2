"""Settings of the worker process, and all that it reads from the environment in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import Field, HttpUrl, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from storage.settings import StorageSettings
from topology.prometheus.ports import Ports
from topology.settings import TopologySettings, load_topology, read_settings
from topology.spec import Topology


class WorkerSettings(BaseSettings):
    """How a worker holds jobs. Built in entry points only.

    Raises:
        pydantic.ValidationError: a variable is wrong; it names the field.
    """

    model_config = SettingsConfigDict(
        env_prefix="REDRIVE_WORKER_", env_file=".env", extra="ignore", frozen=True
    )

    lease_s: float = Field(default=30, gt=0, le=3600, description="a claim holds its job so long")
    renew_s: float = Field(default=10, gt=0, le=1200, description="and is renewed so often")
    crash_bound: int = Field(default=3, ge=1, le=100, description="attempts that may end in a lost process")
    batch_ms: float = Field(
        default=2, ge=0, le=1000, description="claims and completions gather so long, or 5 times that"
    )
    soft_time_limit_s: float = Field(
        default=840, gt=0, le=604_800, description="default soft limit of a task"
    )
    time_limit_s: float = Field(default=900, gt=0, le=604_800, description="default hard limit of a task")
    result_bytes: int = Field(
        default=1_048_576, ge=1024, le=64 * 1024 * 1024, description="most of a result as JSON"
    )
    grace_s: float = Field(
        default=25, gt=0, le=604_800, description="from the signal to stop until the process has ended"
    )
    metrics_port: Ports = Field(
        default="0", description="port of /metrics, or a range of which the first free one is taken; 0: none"
    )
    metrics_host: str = Field(default="127.0.0.1", description="address that /metrics is served at")
    patience_s: float = Field(
        default=5,
        gt=0,
        le=3600,
        description="with Postgres away, unclaimed messages go to the ladder after so long",
    )

    @model_validator(mode="after")
    def _warns_before_it_kills(self) -> Self:
        if self.soft_time_limit_s > self.time_limit_s:
            raise ValueError(
                f"REDRIVE_WORKER_SOFT_TIME_LIMIT_S is {self.soft_time_limit_s:g}; it must not be over "
                f"REDRIVE_WORKER_TIME_LIMIT_S ({self.time_limit_s:g})"
            )
        return self

    @field_validator("renew_s")
    @classmethod
    def _renews_in_time(cls, value: float, info: object) -> float:
        lease = getattr(info, "data", {}).get("lease_s")
        if lease is not None and value > lease / 2:
            raise ValueError(f"is {value:g}; it must be at most half of REDRIVE_WORKER_LEASE_S ({lease:g})")
        return value


class ThirdPartySettings(BaseSettings):
    """The sample jobs' third party."""

    model_config = SettingsConfigDict(env_prefix="REDRIVE_", env_file=".env", extra="ignore", frozen=True)

    third_party_url: str = Field(default="http://127.0.0.1:8900", description="http://host:port")
    third_party_timeout_s: float = Field(default=5, gt=0, le=120, description="of each request")

    @field_validator("third_party_url")
    @classmethod
    def _is_an_http_url(cls, value: str) -> str:
        HttpUrl(value)
        return value.rstrip("/")


@dataclass(frozen=True)
class Environment:
    """Everything that a worker process was told."""

    broker: TopologySettings
    storage: StorageSettings
    worker: WorkerSettings
    topology: Topology


def from_environment() -> Environment:
    """Read the environment and `.env`.

    Raises:
        topology.errors.WrongSettingsError: a variable is missing or wrong.
        topology.errors.InvalidTopologyError: `REDRIVE_TOPOLOGY` names none.
    """
    broker = read_settings(TopologySettings)
    storage, worker = read_settings(StorageSettings), read_settings(WorkerSettings)
    return Environment(broker, storage, worker, load_topology(broker))
