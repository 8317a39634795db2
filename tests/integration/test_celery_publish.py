"""Publishes through Celery: each one raises when its message is not safe with the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import signature
from kombu.exceptions import OperationalError

from storage.settings import StorageSettings
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from topology.address import AmqpAddress
from topology.declare import apply, connection
from topology.entities import compile_topology
from topology.names import step
from topology.settings import TopologySettings
from topology.spec import Topology, WorkQueue
from workers.celery_app import Redrive
from workers.settings import Environment, WorkerSettings

TOPOLOGY = Topology(queues=(WorkQueue("work"),))
AppAt = Callable[[str], Redrive]


@pytest.fixture
def app_at(vhost: Vhost) -> Iterator[AppAt]:
    """`app_at(url)`: an adopter's app whose broker is there, with the queue `work`."""
    apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(TOPOLOGY))
    made: list[Redrive] = []

    def make(url: str) -> Redrive:
        environment = Environment(
            TopologySettings(_env_file=None, amqp_url=url),  # type: ignore[call-arg, arg-type]
            StorageSettings(_env_file=None, database_url="postgresql://localhost/x"),  # type: ignore[call-arg, arg-type]
            WorkerSettings(_env_file=None),  # type: ignore[call-arg]
            TOPOLOGY,
        )
        app = Redrive("publisher", environment=environment, set_as_current=False)
        made.append(app)
        return app

    yield make
    for app in made:
        app.pool.force_close_all()
        app.close()


def named() -> None:
    pass


PUBLISHES: dict[str, Callable[[Redrive, Any], Any]] = {
    "task": lambda _, task: task.delay(),
    "name": lambda app, _: app.send_task("known.elsewhere"),
    "signature": lambda app, _: signature("known.elsewhere", app=app).apply_async(),
    "countdown": lambda app, _: app.send_task("known.elsewhere", countdown=30),
}


@pytest.mark.parametrize("way", PUBLISHES)
def test_a_publish_whose_queue_is_gone_raises(app_at: AppAt, vhost: Vhost, way: str) -> None:
    app = app_at(vhost.amqp_url)
    task = app.task(named, name="named")
    publish = PUBLISHES[way]
    publish(app, task)
    with connection(AmqpAddress.parse(vhost.amqp_url), "test") as opened:
        opened.channel().queue_delete("work")
        opened.channel().exchange_delete(
            step("work", TOPOLOGY.queues[0].ladder, TOPOLOGY.queues[0].ladder.steps - 1)
        )
    with pytest.raises(app.connection().channel_errors):
        publish(app, task)


def test_a_publish_that_is_never_confirmed_raises(
    app_at: AppAt, vhost: Vhost, proxy: Callable[..., TcpProxy]
) -> None:
    through = proxy(vhost.amqp_url)
    app = app_at(through.url)
    app.send_task("known.elsewhere")
    through.hold()
    with pytest.raises(OperationalError, match="timed out"):
        app.send_task("known.elsewhere", retry=False)
    assert vhost.depth("work") == 1


TOO_LARGE: dict[str, tuple[dict[str, Any], str]] = {
    "headers over a frame": ({"headers": {"k": "A" * 200_000}}, "frame_too_large"),  # closes the connection
    "body over the limit": ({"args": ["A" * 20_000_000]}, "larger than configured max size"),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_publish_that_is_too_large_raises_and_the_next_goes_out(
    app_at: AppAt, vhost: Vhost, broker_release: tuple[int, int], what: str
) -> None:
    options, said = TOO_LARGE[what]
    if "args" in options and broker_release < (4, 0):
        pytest.skip("not run: this broker's limit is 128 MiB")
    app = app_at(vhost.amqp_url)
    app.send_task("known.elsewhere")
    with pytest.raises((*app.connection().connection_errors, *app.connection().channel_errors), match=said):
        app.send_task("known.elsewhere", **options)
    app.send_task("known.elsewhere")
    assert vhost.depth("work") == 2
