"""A setting that cannot be meant is refused at the start, and the refusal names the variable."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from dlq_consumer.settings import AlertSettings, ConsumerSettings
from storage.settings import StorageSettings
from tests.unit.test_env_example import settings_classes
from topology.errors import WrongSettingsError
from topology.settings import TopologySettings, read_settings
from workers.settings import ThirdPartySettings, WorkerSettings

NEEDED = {"amqp_url": "amqp://h/x", "database_url": "postgresql://h/x"}
FLOATS = [
    (kind, name)
    for kind in settings_classes()
    for name, field in kind.model_fields.items()
    if field.annotation is float
]


def refusal(kind: type[BaseSettings], **values: Any) -> list[str]:
    needed = {name: value for name, value in NEEDED.items() if name in kind.model_fields}
    with pytest.raises(ValidationError) as caught:
        kind(_env_file=None, **(needed | values))
    return [str(error["loc"] or error["msg"]) for error in caught.value.errors()]


def test_there_are_such_settings() -> None:
    assert len(FLOATS) >= 10


@pytest.mark.parametrize(("kind", "name"), FLOATS)
@pytest.mark.parametrize("value", ["inf", "nan", "-1", "0x"])
def test_a_number_is_finite_and_not_negative(kind: type[BaseSettings], name: str, value: str) -> None:
    assert any(name in text or name.upper() in text for text in refusal(kind, **{name: value}))


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        (ConsumerSettings, {"prefetch": 10, "batch_letters": 11}, "REDRIVE_DLQ_BATCH_LETTERS"),
        (StorageSettings, {"database_pool_min": 11, "database_pool_max": 10}, "REDRIVE_DATABASE_POOL_MIN"),
        (WorkerSettings, {"soft_time_limit_s": 901}, "REDRIVE_WORKER_SOFT_TIME_LIMIT_S"),
    ],
)
def test_two_that_contradict_each_other_are_refused(
    kind: type[BaseSettings], values: dict[str, Any], named: str
) -> None:
    (text,) = refusal(kind, **values)
    assert named in text


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (AlertSettings, {"no_consumer_s": 9}),
        (StorageSettings, {"database_url": "postgresql+psycopg2://h/x"}),
        (StorageSettings, {"database_url": "postgresql://h"}),
        (TopologySettings, {"amqp_url": "amqp://h//"}),
        (TopologySettings, {"management_url": "h:15672"}),
        (ThirdPartySettings, {"third_party_url": "nowhere"}),
        (WorkerSettings, {"lease_s": 10, "renew_s": 6}),
    ],
)
def test_a_value_of_the_wrong_form_is_refused(kind: type[BaseSettings], values: dict[str, Any]) -> None:
    assert any(name in text for text in refusal(kind, **values) for name in values)


def test_the_refusal_names_the_variable_and_not_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_DATABASE_URL", "postgresql+psycopg2://me:secret@h/x")

    with pytest.raises(WrongSettingsError, match="REDRIVE_DATABASE_URL") as caught:
        read_settings(StorageSettings)
    assert "secret" not in str(caught.value)
