"""A line of the log: a text, then the fields; a stranger's fields only where they are asked for."""

from __future__ import annotations

import logging

import pytest

from topology.log_fields import FieldFormatter


def line(formatter: FieldFormatter, **fields: object) -> str:
    record = logging.makeLogRecord({"levelname": "INFO", "msg": "stored %s", "args": ("letters",)} | fields)
    return formatter.format(record)


def test_fields_follow_the_text_and_odd_ones_are_quoted() -> None:
    shown = line(
        FieldFormatter("%(levelname)s %(message)s"), action="kept", queue="a b", why="", n=3, odd="x\ny"
    )

    assert shown == "INFO stored letters action=kept queue='a b' why='' n=3 odd='x\\ny'"


@pytest.mark.parametrize(
    ("fields", "tail"), [({"data": "secret"}, ""), ({"action": "x", "data": 1}, " action=x data=1")]
)
def test_fields_of_another_library_can_be_left_out(fields: dict[str, object], tail: str) -> None:
    assert line(FieldFormatter("%(message)s", needs_action=True), **fields) == "stored letters" + tail
