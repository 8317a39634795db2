"""What we publish is what Celery publishes, and what Celery publishes passes our check of a delivery."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, chord, group

from topology.delivery import Delivery, TaskMessage, check_delivery
from topology.headers import ATTEMPT, PUBLISH
from topology.messages import task_message
from topology.wire import split


@pytest.fixture(scope="module")
def plain() -> Celery:
    """An ordinary Celery app, as somebody else's program has it."""
    app = Celery("plain", broker="memory://", set_as_current=False)

    @app.task(name="jobs.run")
    def run(*_args: Any, **_kwargs: Any) -> None:
        """Never called here."""

    app.finalize()
    return app


def published(app: Celery, protocol: int, **options: Any) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Headers, properties and body of the message that Celery itself would publish."""
    make = app.amqp.as_task_v2 if protocol == 2 else app.amqp.as_task_v1
    message = make("id-1", "jobs.run", (1,), {"a": "é"}, **options)
    body = json.dumps(message.body, default=str).encode()
    return message.headers, message.properties, body


def checked(headers: dict[str, Any], body: bytes, **more: Any) -> TaskMessage:
    result = check_delivery(
        Delivery("application/json", "utf-8", headers, body), known_tasks={"jobs.run"}, **more
    )
    assert isinstance(result, TaskMessage), result
    return result


def test_our_message_has_the_headers_of_celerys_and_no_other_but_ours(plain: Celery) -> None:
    theirs, _, _ = published(plain, 2)
    ours = split(task_message("id-1", "jobs.run", {"a": 1}).properties).headers_dict()

    # Celery adds these for stamping, nesting and replacing; a worker takes a message without them.
    optional = {"shadow", "stamps", "stamped_headers", "replaced_task_nesting", "group_index"}
    assert ours.keys() - theirs.keys() == {ATTEMPT, PUBLISH}
    assert theirs.keys() - ours.keys() <= optional
    same = (
        "lang",
        "task",
        "id",
        "root_id",
        "group",
        "retries",
        "timelimit",
        "eta",
        "expires",
        "ignore_result",
    )
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same} | {"lang": "py"}


def test_our_body_has_the_shape_of_celerys(plain: Celery) -> None:
    _, _, theirs = published(plain, 2)
    args, kwargs, embed = json.loads(task_message("id-1", "jobs.run", {"a": 1}).body)

    assert (args, kwargs) == ([], {"a": 1})
    assert embed.keys() == json.loads(theirs)[2].keys()


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_message_of_celerys_is_read_as_it_was_meant(plain: Celery, protocol: int) -> None:
    eta = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    headers, _, body = published(
        plain,
        protocol,
        eta=eta,
        expires=eta + timedelta(hours=1),
        retries=3,
        time_limit=20,
        soft_time_limit=10,
    )

    message = checked(headers, body, now=datetime.now(UTC))

    assert (message.id, message.task, message.args, message.kwargs) == ("id-1", "jobs.run", [1], {"a": "é"})
    assert (message.protocol, message.retries, message.eta) == (protocol, 3, eta)
    assert (message.expires, message.timelimit) == (eta + timedelta(hours=1), (20, 10))
    assert str(message.attempt) == "1.1"


def test_messages_of_a_canvas_are_read(plain: Celery) -> None:
    run = plain.tasks["jobs.run"]
    body = chord(group(run.s(1)), run.s(2)).body
    headers, _, raw = published(
        plain,
        2,
        chord=body,
        callbacks=[run.s(3)],
        errbacks=[run.s(4)],
        chain=[run.s(5)],
        group_id="g",
        root_id="r",
    )

    message = checked(headers, raw)

    assert message.embed["callbacks"]
    assert message.embed["errbacks"]
    assert message.embed["chain"]
    assert message.embed["chord"]
    assert message.root_id == "r"


def test_a_stamped_message_is_read(plain: Celery) -> None:
    headers, _, raw = published(plain, 2, stamped_headers=["tenant"], tenant="acme")

    assert checked(headers, raw).id == "id-1"
