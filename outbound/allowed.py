"""The type of a setting that allows what is not public."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from outbound.reach import Reach


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _checked(value: tuple[str, ...]) -> tuple[str, ...]:
    Reach.allowing(value)
    return value


# Addresses, networks, host names: in a variable separated by commas.
Allowed = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_checked)]
