"""Entry point: `uvicorn api.app:app`."""

from __future__ import annotations

import sys
from typing import NoReturn, TypeVar

from pydantic_settings import BaseSettings

from api.application import create_app
from api.logs import configure_logging
from api.runtime import Config
from api.settings import ApiSettings
from outbound.settings import CallbackSettings
from storage.settings import StorageSettings
from topology import exits
from topology.errors import InvalidTopologyError, WrongSettingsError
from topology.settings import ReplaySettings, TopologySettings, load_topology, read_settings

Settings = TypeVar("Settings", bound=BaseSettings)


def load_config() -> Config:
    """The configuration from the environment and `.env`, or exit 2 naming every variable that is wrong."""
    wrong: list[str] = []
    api, storage = _build(ApiSettings, wrong), _build(StorageSettings, wrong)
    broker = _build(TopologySettings, wrong)
    replays, callbacks = _build(ReplaySettings, wrong), _build(CallbackSettings, wrong)
    if broker is not None and broker.management_url is None:
        wrong.append("REDRIVE_MANAGEMENT_URL: not set, in the environment or in .env")
    if (
        wrong
        or api is None
        or storage is None
        or broker is None
        or replays is None
        or callbacks is None
        or broker.management_url is None
    ):
        _refuse(wrong)
    try:
        topology = load_topology(broker)
    except InvalidTopologyError as error:
        _refuse([str(error)])
    return Config(
        api, storage, topology, broker.address, broker.management_url.get_secret_value(), replays,
        callbacks.reach if callbacks.secret else None, broker.time_scale, broker.watched_here,
    )  # fmt: skip


def _build(kind: type[Settings], wrong: list[str]) -> Settings | None:
    try:
        return read_settings(kind)
    except WrongSettingsError as error:
        wrong.extend(error.lines)
        return None


def _refuse(wrong: list[str]) -> NoReturn:
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(exits.USAGE)


configure_logging()
app = create_app(load_config())
