"""The standard entry point: `celery -A workers.app worker`."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from topology.errors import InvalidTopologyError
from workers.celery_app import Redrive
from workers.jobs.thirdparty import Client, client
from workers.settings import Environment, ThirdPartySettings, from_environment

JOBS = ("payments", "inventory", "webhooks", "reports", "emails")


def _settings() -> tuple[Environment, ThirdPartySettings]:
    try:
        return from_environment(), ThirdPartySettings()
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(str(part) for part in problem["loc"]).upper()
            prefix = "REDRIVE_WORKER_" if error.title == "WorkerSettings" else "REDRIVE_"
            sys.stderr.write(f"{prefix}{name}: {problem['msg']}\n")
    except InvalidTopologyError as error:
        sys.stderr.write(f"{error}\n")
    sys.exit(2)


_environment, _third_party = _settings()


def third_party() -> Client:
    """The sample jobs' client."""
    return client(_third_party)


app = Redrive("redrive", environment=_environment, include=[f"workers.jobs.{name}" for name in JOBS])
