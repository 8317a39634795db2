"""Settings about the broker, shared by every process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, HttpUrl, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from topology.address import AmqpAddress
from topology.errors import InvalidTopologyError, WrongSettingsError
from topology.spec import Topology
from topology.watched import Place, Watched

S = TypeVar("S", bound=BaseSettings)


class NamedTopology(BaseSettings):
    """Which topology, for what needs no broker. Built in entry points only."""

    model_config = SettingsConfigDict(env_prefix="REDRIVE_", env_file=".env", extra="ignore", frozen=True)

    topology: str = Field(default="topology.catalogue:TOPOLOGY", description="module:attribute of a Topology")
    time_scale: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="shrinks the retry ladder's TTLs; for tests, in vhosts of their own",
    )


class TopologySettings(NamedTopology):
    """Where the broker is and which topology it has. Built in entry points only.

    Raises:
        pydantic.ValidationError: a variable is missing or wrong; it names the field.
    """

    amqp_url: SecretStr = Field(description="amqp://user:password@host:port/vhost")
    management_url: SecretStr | None = Field(
        default=None, description="http://user:password@host:port of the management API"
    )
    watch: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="further queues to drain as dead-letter queues, separated by commas; see docs",
    )

    @field_validator("amqp_url")
    @classmethod
    def _is_an_amqp_url(cls, value: SecretStr) -> SecretStr:
        AmqpAddress.parse(value.get_secret_value())
        return value

    @field_validator("management_url")
    @classmethod
    def _is_an_http_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            HttpUrl(value.get_secret_value())
        return value

    @field_validator("watch", mode="before")
    @classmethod
    def _split_on_commas(cls, value: object) -> object:
        return (
            tuple(name.strip() for name in value.split(",") if name.strip())
            if isinstance(value, str)
            else value
        )

    @field_validator("watch")
    @classmethod
    def _names_queues(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            Watched.parse(text)
        return value

    @property
    def watched(self) -> tuple[Place, ...]:
        """The queues of `watch` in their vhosts, each once."""
        found = (Watched.parse(text) for text in self.watch)
        return tuple(dict.fromkeys(Place(each.vhost or self.address.vhost, each.queue) for each in found))

    @property
    def watched_here(self) -> frozenset[str]:
        """Those of them in the vhost that the process works in."""
        return frozenset(place.queue for place in self.watched if place.vhost == self.address.vhost)

    @property
    def address(self) -> AmqpAddress:
        return AmqpAddress.parse(self.amqp_url.get_secret_value())


class ReplaySettings(BaseSettings):
    """What a replay sends at most. Built in entry points only."""

    model_config = SettingsConfigDict(
        env_prefix="REDRIVE_REPLAY_", env_file=".env", extra="ignore", frozen=True
    )

    laps: int = Field(
        default=25, ge=1, le=1_000_000, description="a message is replayed so many times, then only by force"
    )
    max_mib: int | None = Field(
        default=None, ge=1, le=2_048, description="the broker's max_message_size, where it is not the default"
    )


def read_settings(kind: type[S]) -> S:
    """Settings of any one kind from the environment and `.env`. Called in entry points only.

    Raises:
        WrongSettingsError: a line for each variable that is missing or wrong.
    """
    try:
        return kind()
    except ValidationError as error:
        prefix = kind.model_config.get("env_prefix", "")
        raise WrongSettingsError(
            [
                _words(kind, prefix, problem)
                for problem in error.errors(include_url=False, include_input=False)
            ]
        ) from None


def _words(kind: type[BaseSettings], prefix: str, problem: Mapping[str, Any]) -> str:
    if not problem["loc"]:
        return str(problem["msg"])  # about several variables; it names them itself
    variable = f"{prefix}{'_'.join(map(str, problem['loc'])).upper().removeprefix(prefix)}"
    field = kind.model_fields.get(str(problem["loc"][0]))
    if problem["type"] != "missing" or field is None:
        return f"{variable}: {problem['msg']}"
    return f"{variable}: not set, in the environment or in .env: {field.description}"


def load_topology(settings: NamedTopology) -> Topology:
    """The topology that `REDRIVE_TOPOLOGY` names. The working directory is searched too.

    Raises:
        InvalidTopologyError: no such module or attribute, or it is no Topology.
    """
    return import_topology(settings.topology, f"REDRIVE_TOPOLOGY={settings.topology}")


def import_topology(name: str, shown: str) -> Topology:
    """The topology `module:attribute`. The working directory is searched too.

    Args:
        shown: what errors begin with.

    Raises:
        InvalidTopologyError: no such module or attribute, or it is no Topology.
    """
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise InvalidTopologyError(f"{shown}: must look like module:ATTRIBUTE")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value = getattr(import_module(module_name), attribute)
    except Exception as error:  # it is the user's own module: whatever it raises is told, not traced
        # An invalid topology's own words say everything; "'x'" of a KeyError says nothing.
        kind = "" if isinstance(error, InvalidTopologyError) else f"{type(error).__name__}: "
        raise InvalidTopologyError(f"{shown}: {kind}{error}") from error
    if not isinstance(value, Topology):
        raise InvalidTopologyError(f"{shown} is a {type(value).__name__}, no Topology")
    return value
