"""A wrong setting is refused by the name of its variable."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from topology.errors import WrongSettingsError
from topology.settings import read_settings


class Sample(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="REDRIVE_SAMPLE_", frozen=True)

    url: SecretStr
    size: int = Field(default=1, ge=1)
    most: int = 10

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.size > self.most:
            raise ValueError("REDRIVE_SAMPLE_SIZE is over REDRIVE_SAMPLE_MOST")
        return self


@pytest.fixture(autouse=True)
def _no_env_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_is_right_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_SAMPLE_URL", "amqp://h")
    monkeypatch.setenv("REDRIVE_SAMPLE_SIZE", "3")
    found = read_settings(Sample)
    assert (found.url.get_secret_value(), found.size) == ("amqp://h", 3)


def test_each_wrong_variable_has_a_line_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_SAMPLE_SIZE", "0")
    with pytest.raises(WrongSettingsError) as refused:
        read_settings(Sample)
    assert refused.value.lines == (
        "REDRIVE_SAMPLE_URL: Field required",
        "REDRIVE_SAMPLE_SIZE: Input should be greater than or equal to 1",
    )
    assert str(refused.value).splitlines() == list(refused.value.lines)


def test_a_fault_between_variables_speaks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_SAMPLE_URL", "amqp://user:hush@h")
    monkeypatch.setenv("REDRIVE_SAMPLE_SIZE", "11")
    with pytest.raises(WrongSettingsError) as refused:
        read_settings(Sample)
    assert refused.value.lines == ("Value error, REDRIVE_SAMPLE_SIZE is over REDRIVE_SAMPLE_MOST",)
    assert "hush" not in str(refused.value)
