"""What a worker refuses, each named with its setting: asked of real apps and tasks, without a server."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from celery import Task
from celery.concurrency.prefork import TaskPool
from kombu import Exchange, Queue

from tests.support.pool_process import app_of_its_own, unfinished_app
from topology.spec import WorkQueue
from workers.celery_app import Redrive
from workers.checks import refuse_unsafe_tasks, settings_found, tasks_found
from workers.errors import UnsafeTaskError
from workers.setting_checks import unused_settings
from workers.task import RedriveTask

HARD_S = 900.0


def nothing() -> None:
    """The body of a task."""


def app_with(**settings: Any) -> Redrive:
    app = app_of_its_own(WorkQueue("work"), WorkQueue("mails"))
    app.conf.update(settings)
    app.__dict__.pop("annotations", None)  # read when Celery's own tasks were made
    return app


def found_of_settings(**settings: Any) -> list[str]:
    return list(settings_found(app_with(**settings), TaskPool))


def found_of_a_task(app: Redrive | None = None, **options: Any) -> list[str]:
    app = app or app_with()
    app.task(nothing, shared=False, name="a.task", **options)
    # Celery gives every app the shared tasks of other tests' modules too.
    return list(tasks_found({"a.task": app.tasks["a.task"]}, HARD_S))


def test_an_app_with_no_more_than_the_defaults_is_not_refused() -> None:
    assert found_of_settings() == []
    assert found_of_a_task() == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"task_acks_late": False}, "task_acks_late is off"),
        ({"task_acks_on_failure_or_timeout": True}, "task_acks_on_failure_or_timeout is on"),
        ({"task_acks_on_failure": True}, "task_acks_on_failure is on"),
        ({"task_acks_on_timeout": True}, "task_acks_on_timeout is on"),
        ({"task_reject_on_worker_lost": False}, "task_reject_on_worker_lost is off"),
        ({"task_publish_retry": False}, "task_publish_retry is off"),
        ({"task_always_eager": True}, "task_always_eager is on"),
        ({"task_create_missing_queues": True}, "task_create_missing_queues is on"),
        (
            {"worker_cancel_long_running_tasks_on_connection_loss": True},
            "worker_cancel_long_running_tasks_on_connection_loss is on",
        ),
        ({"worker_detect_quorum_queues": False}, "worker_detect_quorum_queues is off"),
        ({"broker_heartbeat": 0}, "broker_heartbeat is off"),
        ({"broker_transport_options": {}}, "broker_transport_options has no confirm_publish"),
        ({"broker_transport": "memory"}, "broker_transport is 'memory'"),
        ({"broker_url": "amqp://elsewhere//"}, "broker_url is not that of REDRIVE_AMQP_URL"),
        ({"broker_write_url": "amqp://elsewhere//"}, "broker_write_url is not that of REDRIVE_AMQP_URL"),
        ({"task_serializer": "pickle"}, "task_serializer is 'pickle'"),
        ({"accept_content": ["json", "pickle"]}, "accept_content is ['json', 'pickle']"),
        ({"accept_content": []}, "accept_content is []"),
        ({"task_compression": "zstd"}, "task_compression is 'zstd'"),
        ({"task_protocol": 1}, "task_protocol is 1"),
        (
            {"task_time_limit": 60, "task_soft_time_limit": 90},
            "task_soft_time_limit is 90 s, over task_time_limit (60 s)",
        ),
        ({"task_default_queue": "celery"}, "task_default_queue is 'celery', not in the topology"),
        ({"task_default_exchange_type": "topic"}, "task_default_exchange_type is 'topic'"),
        ({"task_queues": [Queue("work")]}, "task_queues names 'work'"),
        (
            {"task_routes": {"shop.*": {"queue": "mial"}}},
            "task_routes sends 'shop.*' to queue 'mial', which is not in the topology",
        ),
        ({"task_routes": [("shop.*", "mial")]}, "task_routes sends 'shop.*' to queue 'mial'"),
        ({"task_routes": ({"shop.a": "mial"},)}, "task_routes sends 'shop.a' to queue 'mial'"),
        ({"worker_consumer": "celery.worker.consumer:Consumer"}, "worker_consumer"),
    ],
)
def test_a_setting_is_refused_by_its_name(settings: dict[str, Any], said: str) -> None:
    found = found_of_settings(**settings)
    assert any(finding.startswith(said) for finding in found), found


@pytest.mark.parametrize(
    "settings",
    [
        {"task_routes": {"shop.*": {"queue": "mails"}}},
        {"task_routes": [("shop.*", {"queue": "mails"}), ("other.*", "work")]},
        {"task_routes": lambda name, args, kwargs, options, task=None, **more: {"queue": args[0]}},
        {"task_ignore_result": True, "result_serializer": "pickle"},
        {"worker_prefetch_multiplier": 1, "worker_disable_prefetch": True},
        {"broker_pool_limit": 0},
        {"task_compression": "gzip"},
        {"result_backend": "rpc://"},
    ],
)
def test_what_loses_nothing_is_let_be(settings: dict[str, Any]) -> None:
    assert found_of_settings(**settings) == []
    assert found_of_a_task(app_with(**settings)) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"acks_late": False}, "acks_late is off"),
        ({"acks_on_failure_or_timeout": True}, "acks_on_failure_or_timeout is on"),
        ({"acks_on_failure": True}, "acks_on_failure is on"),
        ({"acks_on_timeout": True}, "acks_on_timeout is on"),
        ({"reject_on_worker_lost": False}, "reject_on_worker_lost is off"),
        ({"time_limit": 901}, "its hard time limit of 901 s"),
        ({"time_limit": 60, "soft_time_limit": 61}, "its soft_time_limit of 61 s is over"),
        ({"mandatory": False}, "mandatory is off"),
        ({"serializer": "pickle"}, "serializer is 'pickle'"),
        ({"compression": "zstd"}, "compression is 'zstd'"),
        ({"Strategy": "celery.worker.strategy:other"}, "it has a Strategy of its own"),
        ({"Request": "celery.worker.request:Request"}, "it has a Request class of its own"),
        ({"base": Task}, "its base class is not RedriveTask"),
    ],
)  # fmt: skip
def test_a_task_is_refused_by_its_name_and_setting(options: dict[str, Any], said: str) -> None:
    found = found_of_a_task(**options)
    assert any(finding.startswith(f"task a.task: {said}") for finding in found), found


class WithNamespace:
    CELERY_TASK_ACKS_LATE = False
    CELERY_TASK_TIME_LIMIT = 3000
    CELERY_TASK_ROUTES = MappingProxyType({"a.*": {"queue": "mails"}})
    CELERY_BROKER_URL = "amqp://elsewhere//"


class OldNames:
    CELERY_ACKS_LATE = False
    CELERYD_TASK_TIME_LIMIT = 3000
    CELERY_ROUTES = MappingProxyType({"a.*": {"queue": "mails"}})
    BROKER_URL = "amqp://elsewhere//"


class NewNames:
    task_acks_late = False
    task_time_limit = 3000
    task_routes = MappingProxyType({"a.*": {"queue": "mails"}})
    broker_url = "amqp://elsewhere//"


@pytest.mark.parametrize(
    ("source", "namespace"), [(WithNamespace, "CELERY"), (OldNames, None), (NewNames, None)]
)
def test_a_configuration_object_goes_before_our_defaults_and_is_checked(
    source: type, namespace: str | None
) -> None:
    app = unfinished_app(WorkQueue("work"), WorkQueue("mails"))
    app.config_from_object(source, namespace=namespace)
    app.finalize()
    said = "; ".join(settings_found(app, TaskPool))
    assert "task_acks_late is off" in said
    assert "broker_url is not that of REDRIVE_AMQP_URL" in said
    assert "confirm_publish" not in said, "where it says nothing, our default holds"
    assert app.conf.task_create_missing_queues is False
    assert found_of_a_task(app) == [
        "task a.task: its hard time limit of 3000 s (its time_limit, or REDRIVE_WORKER_TIME_LIMIT_S for all) "
        "is over the 900 s of queue 'mails' (time_limit_s); lower the one or raise the other"
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"worker_prefetch_multiplier": 2}, "worker_prefetch_multiplier has no effect"),
        ({"worker_eta_task_limit": 10}, "worker_eta_task_limit has no effect"),
        ({"worker_disable_prefetch": True}, "worker_disable_prefetch has no effect"),
        ({"task_retry_on_worker_lost": True}, "task_retry_on_worker_lost has no effect"),
    ],
)
def test_a_setting_without_an_effect_is_told(settings: dict[str, Any], said: str) -> None:
    assert [words.startswith(said) for words in unused_settings(app_with(**settings))] == [True]
    assert list(unused_settings(app_with())) == []


def test_the_same_said_of_all_tasks_is_told_once() -> None:
    app = app_with(task_acks_late=False, task_acks_on_failure_or_timeout=True, task_serializer="pickle")
    assert found_of_a_task(app) == []


def test_an_annotation_is_seen() -> None:
    app = app_with(task_annotations={"a.*": {"acks_late": False}, "a.task": {"max_retries": None}})
    said = "; ".join(found_of_a_task(app))
    assert "task a.task: acks_late is off" not in said, "a pattern is no annotation to Celery"
    assert "task a.task: max_retries is None" in said
    everywhere = app_with(task_annotations={"*": {"acks_late": False}})
    assert found_of_a_task(everywhere) == [
        "task a.task: acks_late is off: acknowledged before it has run; remove the override"
    ]


def test_an_attribute_of_a_base_class_is_seen() -> None:
    class Early(RedriveTask):
        abstract = True
        acks_late = False

    assert found_of_a_task(base=Early) == [
        "task a.task: acks_late is off: acknowledged before it has run; remove the override"
    ]


def test_a_class_based_task_is_seen() -> None:
    class Nightly(RedriveTask):
        name = "a.nightly"
        reject_on_worker_lost = False
        max_retries = None

        def run(self) -> None:
            pass

    app = app_with()
    app.register_task(Nightly())
    assert [finding.split(":")[1].strip() for finding in tasks_found(app.tasks, HARD_S)] == [
        "reject_on_worker_lost is off",
        "max_retries is None",
    ]


def test_a_task_without_any_time_limit_is_refused() -> None:
    app = app_with(task_time_limit=None, task_soft_time_limit=None)
    app.task(nothing, shared=False, name="a.task")
    assert list(tasks_found({"a.task": app.tasks["a.task"]}, None)) == [
        "task a.task: it has no time limit: its lease could not end; set time_limit"
    ]


def test_a_hard_limit_below_the_default_soft_one_is_no_mistake() -> None:
    app = app_with(task_soft_time_limit=90, task_always_eager=True)
    assert found_of_a_task(app, time_limit=60) == []
    assert app.tasks["a.task"].delay().successful(), "Celery refuses to publish what is warned too late"
    assert found_of_a_task(app_with(task_soft_time_limit=50), time_limit=60) == []


@pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning")
@pytest.mark.filterwarnings("ignore::celery.exceptions.CDeprecationWarning")
def test_a_queue_that_is_not_in_the_topology_is_told() -> None:
    assert found_of_a_task(queue="mial") == [
        "task a.task: its queue is not in the topology: Queue 'mial' missing from task_queues; add it there, "
        "or name another"
    ]


def test_a_route_to_an_exchange_is_told() -> None:
    app = app_with(task_routes={"a.task": {"exchange": "shop", "routing_key": "x"}})
    said = "; ".join(found_of_a_task(app))
    assert "its queue is not in the topology: it is sent to exchange 'shop'" in said
    topics = app_with(task_routes={"a.task": {"exchange": Exchange("media"), "routing_key": "x"}})
    assert "exchange 'media'" in "; ".join(found_of_a_task(topics))


def test_celerys_own_tasks_are_let_be() -> None:
    app = app_with(task_time_limit=None)
    assert app.tasks["celery.chord_unlock"].max_retries is None
    refuse_unsafe_tasks({name: task for name, task in app.tasks.items() if name.startswith("celery.")}, None)


def test_all_findings_come_at_once() -> None:
    app = app_with()
    app.task(nothing, shared=False, name="a.one", acks_late=False)
    app.task(nothing, shared=False, name="b.two", acks_on_timeout=True)
    with pytest.raises(UnsafeTaskError, match=r"task a\.one: .*; task b\.two: acks_on_timeout"):
        refuse_unsafe_tasks(app.tasks, HARD_S)
