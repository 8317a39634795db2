"""The standard entry point: `celery -A workers.app worker`."""

from __future__ import annotations

import sys

from topology import exits
from topology.errors import InvalidTopologyError, WrongSettingsError
from topology.settings import read_settings
from workers.celery_app import Redrive
from workers.jobs.thirdparty import Client, client
from workers.settings import Environment, ThirdPartySettings, from_environment

JOBS = ("payments", "inventory", "webhooks", "reports", "emails")


def _settings() -> tuple[Environment, ThirdPartySettings]:
    try:
        return from_environment(), read_settings(ThirdPartySettings)
    except (WrongSettingsError, InvalidTopologyError) as error:
        sys.stderr.write(f"{error}\n")
    sys.exit(exits.USAGE)


_environment, _third_party = _settings()


def third_party() -> Client:
    """The sample jobs' client."""
    return client(_third_party)


app = Redrive("redrive", environment=_environment, include=[f"workers.jobs.{name}" for name in JOBS])
