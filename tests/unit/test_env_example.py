"""`.env.example` names every setting that exists, with its default, and none that does not."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^(?:# )?(REDRIVE_[A-Z0-9_]+)=(.*)$", re.MULTILINE)
IN_COMPOSE = re.compile(r"\$\{(REDRIVE_[A-Z0-9_]+)(?::-([^}]*))?")
# Read by dev/servers, which has no settings class.
OF_DEV = {
    "REDRIVE_SERVERS",
    "REDRIVE_TEST_AMQP_URL",
    "REDRIVE_TEST_MANAGEMENT_URL",
    "REDRIVE_TEST_DATABASE_URL",
}


# Off by default, and on in the example.
SWITCHED_ON = {"REDRIVE_API_DOCS"}


def settings_classes() -> list[type[BaseSettings]]:
    modules = [
        importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for file in sorted(ROOT.glob("*/settings.py"))
    ]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseSettings) and value.__module__ == module.__name__
    ]


def defaults() -> dict[str, object]:
    """Every variable of every class, and its default; None where there is none."""
    return {
        f"{kind.model_config['env_prefix']}{name}".upper(): None if field.is_required() else field.default
        for kind in settings_classes()
        for name, field in kind.model_fields.items()
    }


def example() -> dict[str, str]:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    return dict(LINE.findall(text))


def in_compose() -> dict[str, str]:
    """Variables that compose.yaml takes from outside, and the default it gives them."""
    found: dict[str, str] = {}
    for name, default in IN_COMPOSE.findall((ROOT / "compose.yaml").read_text(encoding="utf-8")):
        found[name] = default or found.get(name, "")
    return found


def test_every_process_has_settings() -> None:
    assert {kind.__module__.partition(".")[0] for kind in settings_classes()} == {
        "api",
        "dlq_consumer",
        "outbound",
        "storage",
        "topology",
        "workers",
    }


def test_it_names_every_setting_and_no_other() -> None:
    assert sorted(example()) == sorted({*defaults(), *in_compose(), *OF_DEV})


def test_no_setting_is_named_twice() -> None:
    names = [name for name, _ in LINE.findall((ROOT / ".env.example").read_text(encoding="utf-8"))]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", sorted(defaults()))
def test_a_default_is_shown_as_it_is(name: str) -> None:
    default, shown = defaults()[name], example()[name]
    if name in SWITCHED_ON:
        assert (default, shown) == (False, "true")
        return
    if default is None or default == ():
        assert shown == ""
    elif isinstance(default, bool):
        assert shown == str(default).lower()
    elif isinstance(default, int | float):
        assert float(shown) == float(default)
    else:
        assert shown == default


@pytest.mark.parametrize("name", sorted(name for name in in_compose() if "_COMPOSE_" in name))
def test_a_default_of_compose_is_shown_as_it_is(name: str) -> None:
    assert in_compose()[name] == example()[name]


def test_only_the_passwords_and_the_docs_of_the_example_are_set() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert re.findall(r"^([A-Z_]+)=", text, re.MULTILINE) == [
        "REDRIVE_RABBITMQ_PASSWORD",
        "REDRIVE_POSTGRES_PASSWORD",
        *SWITCHED_ON,
    ]
