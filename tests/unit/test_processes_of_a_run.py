"""Processes of one test run: each has servers and ports of its own."""

from __future__ import annotations

from itertools import islice

import pytest

from dev.runs import TESTS
from tests.support import ports
from tests.support.servers import purpose


def test_each_has_servers_of_its_own_as_long_as_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert purpose() == "test"
    found = []
    for number in range(len(TESTS)):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        found.append(purpose())
    assert tuple(found) == TESTS
    monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{len(TESTS)}")
    with pytest.raises(pytest.exit.Exception, match="no more"):
        purpose()


def test_no_two_are_given_one_port_and_none_is_given_twice_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for number in range(len(TESTS)):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        shares.append(list(islice(ports._shares(), 1_000)))
    assert len({port for share in shares for port in share}) == 1_000 * len(TESTS)
    given = [ports.free_port() for _ in range(100)]
    assert len(set(given)) == 100
