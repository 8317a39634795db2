"""A wait asks over one connection, and over another where that was lost; it leaves none open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.support import waiting
from tests.support.kept import ask
from tests.support.waiting import eventually


class Lost(Exception):
    """What a question raises over a connection that has gone."""


@dataclass
class Server:
    opened: int = 0
    up: set[int] = field(default_factory=set)

    @contextmanager
    def connection(self) -> Iterator[int]:
        self.opened += 1
        number = self.opened
        self.up.add(number)
        try:
            yield number
        finally:
            self.up.discard(number)

    def ask(self) -> int:
        """The number of the connection."""

        def question(number: int) -> int:
            if number not in self.up:
                raise Lost
            return number

        return ask("here", self.connection, question, lambda number, _: number not in self.up)


def test_outside_of_a_wait_each_question_has_its_own() -> None:
    server = Server()
    assert [server.ask(), server.ask()] == [1, 2]
    assert server.up == set()


def test_a_wait_has_one_and_leaves_none() -> None:
    server, answers = Server(), list[int]()

    def three() -> bool:
        answers.append(server.ask())
        return len(answers) == 3

    eventually(three, every_s=0.001)
    assert answers == [1, 1, 1]
    assert server.up == set()
    assert server.ask() == 2


def test_a_wait_within_a_wait_has_the_same() -> None:
    server = Server()
    eventually(lambda: eventually(server.ask) and server.ask())
    assert (server.opened, server.up) == (1, set())


def test_a_lost_one_is_replaced_and_the_question_asked_again() -> None:
    server, answers = Server(), list[int]()

    def three() -> bool:
        answers.append(server.ask())
        server.up.clear()
        return len(answers) == 3

    eventually(three, every_s=0.001)
    assert answers == [1, 2, 3]


def test_what_a_question_raises_passes_through_and_the_connection_stays() -> None:
    server, errors = Server(), [ValueError("a wrong question"), AssertionError()]

    def question(number: int) -> int:
        if errors:
            raise errors.pop()
        return number

    def asked() -> int:
        assert server.ask() == 1
        return ask("here", server.connection, question, lambda number, _: False)

    with pytest.raises(ValueError, match="a wrong question"):
        eventually(asked, every_s=0.001)
    assert server.up == set()


def test_a_wait_that_gives_up_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LEAST_S", 0.0)
    server = Server()
    with pytest.raises(AssertionError, match="not within"):
        eventually(lambda: server.ask() == 0, 0.01, every_s=0.001)
    assert server.up == set()
