"""The exception that `AsyncResult.get` raises: of the recorded class, saying what was recorded."""

from __future__ import annotations

import pickle

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery import Celery
from celery.backends.base import BaseBackend
from celery.exceptions import NotRegistered, Reject, TaskError

from storage.results import Ended
from workers.outcomes import describe, qualified_name
from workers.results.exceptions import chord_error, rebuilt


class OutOfStock(Exception):
    def __init__(self, sku: str) -> None:
        super().__init__(f"{sku} is out of stock")


class Declined(Exception):
    def __init__(self, card: str, code: int) -> None:
        self.card, self.code = card, code

    def __str__(self) -> str:
        return f"card {self.card} was declined with {self.code}"


class Demanding(Exception):
    def __new__(cls, one: int, two: int) -> Demanding:
        return super().__new__(cls, one, two)


BACKEND = BaseBackend(app=Celery())


def told(error: BaseException) -> BaseException:
    failure = describe(error)
    return rebuilt(BACKEND, Ended("exception", None, failure.type, failure.message))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        OutOfStock("apple"),
        Declined("1234", 5),
        KeyError("key"),
        FileNotFoundError(2, "no such file"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        TimeLimitExceeded(3),
        NotRegistered("shop.nobody"),
        Reject("no good"),
        ValueError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_it_says_what_the_original_said_and_is_caught_as_it(error: BaseException) -> None:
    again = told(error)
    assert str(again) == str(error)
    assert isinstance(again, type(error))
    assert str(chord_error("member", again)).startswith("Dependency member raised ")
    # Raised on by a task that waited for it, it is recorded as the same again.
    assert (qualified_name(type(again)), describe(again).message) == (
        qualified_name(type(error)),
        str(error),
    )
    copied = pickle.loads(pickle.dumps(told(again)))
    assert isinstance(copied, type(error))


def test_what_cannot_be_made_still_tells_its_class_and_text() -> None:
    again = rebuilt(BACKEND, Ended("exception", None, f"{__name__}.Demanding", "no"))
    assert type(again) is TaskError
    assert str(again) == f"{__name__}.Demanding: no"


def test_a_name_that_is_no_exception_is_not_called() -> None:
    again = rebuilt(BACKEND, Ended("exception", None, "pathlib.Path", "/"))
    assert type(again) is TaskError


def test_an_end_without_an_exception_says_its_text_once() -> None:
    again = rebuilt(BACKEND, Ended("hard_timeout", "the limit of 1 s", None, None))
    assert isinstance(again, TimeLimitExceeded)
    assert str(again) == "the limit of 1 s"
