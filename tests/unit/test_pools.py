"""Pools other than prefork and threads are refused, each for its own reason."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery.concurrency.base import BasePool
from celery.concurrency.prefork import TaskPool as Prefork
from celery.concurrency.solo import TaskPool as Solo
from celery.concurrency.thread import TaskPool as CeleryThreads

from workers.pools import ours, unsafe_pool
from workers.threads.pool import TaskPool as Threads

NOTHING = SimpleNamespace(max_tasks_per_child=None, max_memory_per_child=None)


def pool_of(module: str) -> type:
    return type("TaskPool", (BasePool,), {"__module__": module})


@pytest.mark.parametrize("pool", [Prefork, Threads])
def test_prefork_and_threads_are_supported(pool: type) -> None:
    assert list(unsafe_pool(pool, NOTHING, {})) == []


def test_where_celerys_threads_are_asked_for_ours_are_used() -> None:
    assert ours(CeleryThreads) is Threads
    assert ours(Prefork) is Prefork


@pytest.mark.parametrize(
    ("pool", "name", "reason"),
    [
        (Solo, "solo", "it runs jobs on the main thread"),
        (pool_of("celery.concurrency.gevent"), "gevent", "share one thread with the ledger"),
        (pool_of("celery.concurrency.eventlet"), "eventlet", "share one thread with the ledger"),
        (pool_of("their.pool"), "their.pool", "what becomes of a lost or overdue job"),
        (pool_of("their.prefork"), "their.prefork", "what becomes of a lost or overdue job"),
    ],
)
def test_another_pool_is_refused_with_the_reason(pool: type, name: str, reason: str) -> None:
    (finding,) = unsafe_pool(pool, NOTHING, {})
    assert finding.startswith(f"the pool is {name}; prefork and threads are supported: ")
    assert reason in finding


@pytest.mark.parametrize("option", ["max_tasks_per_child", "max_memory_per_child"])
def test_options_for_children_are_refused_for_threads(option: str) -> None:
    controller = SimpleNamespace(**{**vars(NOTHING), option: 5})
    (finding,) = unsafe_pool(Threads, controller, {})
    assert finding.startswith(f"{option} does nothing")
    assert list(unsafe_pool(Prefork, controller, {})) == []
