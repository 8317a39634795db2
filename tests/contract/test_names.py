"""Names that others build on. A test that fails here tells that somebody else's program would break."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import storage.cli
from storage.migrate import migrations
from storage.settings import StorageSettings
from topology import exits
from topology.catalogue import TOPOLOGY
from topology.names import dead_letter_queues, derived_names
from topology.settings import TopologySettings

ROOT = Path(__file__).parents[2]


def test_console_scripts() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(project["scripts"]) == {"topology", "storage", "dlq", "api-keys", "workers"}


def test_settings() -> None:
    names = {
        f"{settings.model_config['env_prefix']}{field}".upper()
        for settings in (TopologySettings, StorageSettings)
        for field in settings.model_fields
    }

    assert names >= {
        "REDRIVE_AMQP_URL",
        "REDRIVE_MANAGEMENT_URL",
        "REDRIVE_DATABASE_URL",
        "REDRIVE_TOPOLOGY",
        "REDRIVE_WATCH",
        "REDRIVE_TIME_SCALE",
    }
    assert {settings.model_config["env_file"] for settings in (TopologySettings, StorageSettings)} == {".env"}


def test_exit_codes() -> None:
    assert (exits.DONE, exits.FAILED, exits.USAGE) == (0, 1, 2)
    assert (exits.CHANGES, exits.CONFLICT, exits.INTERRUPTED) == (3, 4, 130)
    assert (storage.cli.EXIT_FAILED, storage.cli.EXIT_USAGE) == (exits.FAILED, exits.USAGE)


def test_names_on_the_broker() -> None:
    assert dead_letter_queues(TOPOLOGY) == (
        "payments.dlq", "inventory.dlq", "reports.dlq", "webhooks.dlq", "emails.dlq", "redrive.unrouted.dlq",
    )  # fmt: skip
    assert list(derived_names(TOPOLOGY.queue("payments"))) == [
        "payments", "payments.dlx", "payments.dlq", "payments.due",
        "payments.retry.250ms", "payments.retry.500ms", "payments.retry.1s", "payments.retry.2s",
        "payments.retry.4s", "payments.retry.8s", "payments.retry.16s", "payments.retry.32s",
        "payments.retry.64s", "payments.retry.128s", "payments.retry.256s", "payments.retry.512s",
    ]  # fmt: skip


def test_every_table_lives_in_the_schema_redrive() -> None:
    for migration in migrations():
        tables = re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\S+)", migration.sql)
        assert all(table.startswith("redrive.") for table in tables), migration.name


def test_states_of_jobs_and_letters() -> None:
    sql = "".join(
        file.read_text()
        for file in sorted(files("storage").joinpath("migrations").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".sql")
    )

    assert _listed(sql, "'PENDING'") == {
        "PENDING", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "DEAD", "CANCELLED",
    }  # fmt: skip
    assert _listed(sql, "'open'") == {"open", "replaying", "replayed", "discarded", "quarantined"}


def _listed(sql: str, first: str) -> set[str]:
    """The values of the CHECK (… IN (first, …))."""
    match = re.search(rf"IN\s*\(({re.escape(first)}[^)]*)\)", sql)
    assert match is not None
    return set(re.findall(r"'(\w+)'", match[1]))
