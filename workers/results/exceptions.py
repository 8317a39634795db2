"""The exception of an ended job, built again from what is on record, as Celery does it."""

from __future__ import annotations

import operator
import sys
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import ChordError, NotRegistered, TaskError, TaskRevokedError

from storage.results import Blocked, Ended
from workers.results.told import saying

_BY_REASON: dict[str, type[Exception]] = {
    "hard_timeout": TimeLimitExceeded,
    "worker_lost": WorkerLostError,
    "memory": WorkerLostError,
    "delivery_limit": WorkerLostError,
    "revoked": TaskRevokedError,
    "expired": TaskRevokedError,
    "unknown_task": NotRegistered,
}


def rebuilt(backend: Any, ended: Ended) -> BaseException:
    """By type and message where there was an exception, else by the reason. Never raises.

    Args:
        backend: a Celery backend: its rules say which classes may be built.
    """
    if ended.exception_type:
        module, name = _split(ended.exception_type)
        stored = {"exc_type": name, "exc_module": module, "exc_message": [ended.message or ""]}
        try:
            kind = _class(module, name)
            error = saying(kind, ended.message or "") if kind else backend.exception_to_python(stored)
        except Exception:  # noqa: BLE001 - a class that must not be built
            error = None
        if isinstance(error, BaseException):
            return error
        unbuilt: BaseException = TaskError(f"{ended.exception_type}: {ended.message}")
        return unbuilt
    kind = _BY_REASON.get(ended.reason or "", TaskError)
    return saying(kind, ended.error or ended.reason or "it was dead-lettered")


def blocked(backend: Any, found: Blocked) -> BaseException:
    """That of the job in the way; for a chord's body, an error that names it."""
    error = rebuilt(backend, found.ended)
    return chord_error(found.cause, error) if found.chord else error


def chord_error(member: str, error: BaseException) -> ChordError:
    """As Celery words it."""
    wrapped = ChordError(f"Dependency {member} raised {error!r}")
    wrapped.__cause__ = error
    return wrapped


def _split(qualified: str) -> tuple[str, str]:
    """Module and class. A class that is not loaded here is taken for one of the module's own."""
    module, _, name = qualified.rpartition(".")
    if not module:
        return "builtins", name
    while module:
        if module in sys.modules and _has(sys.modules[module], name):
            return module, name
        module, _, outer = module.rpartition(".")
        name = f"{outer}.{name}"
    module, _, name = qualified.rpartition(".")
    return module, name


def _has(place: object, name: str) -> bool:
    try:
        return isinstance(operator.attrgetter(name)(place), type)
    except AttributeError:
        return False


def _class(module: str, name: str) -> type[BaseException] | None:
    """The exception's class, if it is loaded here and is one. Nothing is imported for it."""
    place = sys.modules.get(module)
    if place is None or not _has(place, name):
        return None
    found = operator.attrgetter(name)(place)
    return found if issubclass(found, BaseException) else None
