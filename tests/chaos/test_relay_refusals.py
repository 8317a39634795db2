"""What the broker refuses stays with its reason and holds nothing else up; what it may have is sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from dev.servers import NotControllable, Servers
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.text_topology import WATERMARK
from tests.support.waiting import eventually

MakeProxy = Callable[..., TcpProxy]
LIMIT = 20_000


@pytest.fixture
def texts(stack: Stack) -> Stack:
    stack.settings["REDRIVE_TOPOLOGY"] = "tests.support.text_topology:TOPOLOGY"
    stack.apply_topology()
    return stack


def submit(stack: Stack, queue: str, *keys: str, size: int = 1) -> list[str]:
    """The ids of the accepted jobs."""
    jobs = [
        {"type": f"{queue}.job", "payload": {"text": "x" * size}, "idempotency_key": f"{queue}-{key}"}
        for key in keys
    ]
    answer = stack.http.post("/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 202, answer.text
    return [each["id"] for each in answer.json()["results"]]


def outbox(stack: Stack, where: str = "true") -> int:
    return int(stack.database.value(f"select count(*) from redrive.outbox where {where}"))


def ids(stack: Stack, queue: str) -> list[str]:
    """Of the jobs whose messages are in a queue, which is empty then."""
    bodies = stack.vhost.get(queue, 10_000)
    return [message["properties"]["message_id"] for message in bodies]


def refused(stack: Stack) -> dict[str, Any]:
    """Jobs by id, as the list shows them."""
    found = stack.http.get("/jobs", params={"refused": "true"}).raise_for_status().json()["jobs"]
    return {job["id"]: job for job in found}


@contextmanager
def limited(servers: Servers, size: int) -> Iterator[None]:
    """The broker takes messages of `size` bytes at most, on channels that are opened from now on."""
    # RabbitMQ 3.10 reads the setting of the application, 4 a copy that is made at the start.
    say = (
        "application:set_env(rabbit, max_message_size, {0}), persistent_term:put(max_message_size, {0})."
    ).format
    try:
        before = servers.rabbitmqctl(
            "eval", "{ok, Size} = application:get_env(rabbit, max_message_size), Size."
        )
    except NotControllable as error:
        pytest.skip(f"not run: {error}")
    servers.rabbitmqctl("eval", say(size))
    try:
        yield
    finally:
        servers.rabbitmqctl("eval", say(int(before)))


def test_a_message_too_large_for_the_broker_stays_with_its_reason_and_takes_no_other_along(
    texts: Stack, servers: Servers, proxy: MakeProxy
) -> None:
    broker = proxy(texts.vhost.amqp_url)
    with limited(servers, LIMIT):
        texts.start_api(REDRIVE_AMQP_URL=broker.url)
        (large,) = submit(texts, "texts", "large", size=2 * LIMIT)
        eventually(lambda: large in refused(texts), 30, "it is refused")
        shown = texts.job(large)
        assert "PRECONDITION_FAILED" in shown["outbox"]["last_error"]
        assert (shown["state"], list(refused(texts))) == ("PENDING", [large])
        # It falls due in one batch with these, behind them, and closes the channel again.
        broker.refuse()
        small = submit(texts, "texts", *map(str, range(40)))
        tries = texts.job(large)["outbox"]["tries"]
        texts.database.execute("update redrive.outbox set not_before = now() where tries > 0")
        broker.resume()
        eventually(lambda: texts.job(large)["outbox"]["tries"] > tries, 30, "it was tried again")
        eventually(lambda: outbox(texts) == 1, 30, "all others are published")
        assert ids(texts, "texts") == small
    # A channel keeps the limit with which it was opened: the next refusal opens another.
    eventually(lambda: outbox(texts) == 0, 60, "it is published where it fits")
    assert ids(texts, "texts") == [large]
    assert refused(texts) == {}


def test_what_a_full_queue_refuses_waits_and_other_queues_go_on(texts: Stack) -> None:
    vhost = quote(texts.vhost.vhost, safe="")
    # On 3.10 nothing but taking messages ends the refusals, not even deleting the policy.
    full = {"pattern": "^texts$", "definition": {"max-length": 3}, "apply-to": "queues"}
    texts.vhost.management.put(f"/api/policies/{vhost}/full", json=full).raise_for_status()
    texts.start_api()
    nacked = "last_error like '%basic.nack%'"
    # A quorum queue refuses a moment after it has more than its length.
    sent = submit(texts, "texts", *map(str, range(10)))
    eventually(
        lambda: outbox(texts, f"not coalesce({nacked}, false)") == 0, 30, "the queue is more than full"
    )
    sent += submit(texts, "texts", *map(str, range(10, 30)))
    eventually(lambda: outbox(texts, nacked) > 0, 30, "some are nacked")
    others = submit(texts, "others", *map(str, range(5)))
    eventually(lambda: outbox(texts, "queue = 'others'") == 0, 30, "the other queue takes its jobs")
    assert ids(texts, "others") == others
    waiting = refused(texts)
    assert waiting.keys() <= set(sent)
    assert waiting
    found: list[str] = []

    def all_are_published() -> bool:
        found.extend(ids(texts, "texts"))  # it takes messages again once it has room
        return outbox(texts) == 0

    eventually(all_are_published, 60, "all are published")
    assert Counter(found + ids(texts, "texts")) == Counter(sent)


def test_a_confirm_that_is_lost_with_its_connection_is_made_up_for_by_the_same_message_again(
    texts: Stack, proxy: MakeProxy
) -> None:
    broker = proxy(texts.vhost.amqp_url)
    texts.start_api(REDRIVE_AMQP_URL=broker.url)
    submit(texts, "others", "warm")
    eventually(lambda: outbox(texts) == 0, 30, "the relay knows the queue")
    broker.hold_answers()
    (job,) = submit(texts, "others", "a")
    eventually(lambda: texts.depth("others") == 2, 30, "the broker has the message")
    assert outbox(texts) == 1
    broker.cut()
    broker.resume()
    eventually(lambda: outbox(texts) == 0, 30, "it is confirmed")
    copies = [each for each in texts.vhost.get("others", 10) if each["properties"]["message_id"] == job]
    assert len(copies) == 2
    # Alike in every byte, attempt and token included: the job's claim lets one of them run.
    assert copies[0]["payload"] == copies[1]["payload"]
    assert copies[0]["properties"] == copies[1]["properties"]
    assert outbox(texts, "last_error is not null") == 0


def test_an_alarm_of_the_broker_delays_jobs_and_loses_none(texts: Stack, servers: Servers) -> None:
    texts.start_api()
    submit(texts, "others", "first")
    eventually(lambda: outbox(texts) == 0, 30, "the first is published")
    try:
        servers.rabbitmqctl("set_vm_memory_high_watermark", "0.00001")
    except NotControllable as error:
        pytest.skip(f"not run: {error}")
    try:
        # The broker tells a connection of the alarm when that publishes.
        sent = submit(texts, "others", *map(str, range(20)))

        def blocked() -> bool:
            answer = texts.http.get("/readyz")
            assert answer.status_code == 200
            return {"name": "broker", "trouble": "blocked"} in answer.json()["degraded"]

        eventually(blocked, 30, "readiness names the alarm")
        sent += submit(texts, "others", "late")
        assert outbox(texts) > 0
    finally:
        servers.rabbitmqctl("set_vm_memory_high_watermark", "0.6")
    eventually(lambda: outbox(texts) == 0, 60, "all are published")
    found = ids(texts, "others")
    assert set(found[1:]) == set(sent)


def test_two_relays_pause_for_a_queue_above_its_watermark_and_go_on_with_the_others(texts: Stack) -> None:
    texts.start_api()
    texts.start_api()
    sent = submit(texts, "low", *map(str, range(60)))
    eventually(lambda: texts.depth("low") >= WATERMARK, 30, "the queue is filled")
    others = submit(texts, "others", *map(str, range(5)))
    eventually(lambda: outbox(texts, "queue = 'others'") == 0, 30, "the other queue takes its jobs")
    assert ids(texts, "others") == others
    # Each relay counts what it sends itself between two looks.
    assert texts.depth("low") <= 2 * WATERMARK
    found = Counter[str]()
    while len(found) < len(sent):
        eventually(lambda: texts.depth("low") > 0, 30, "there is room, and it is used")
        assert texts.depth("low") <= 2 * WATERMARK
        found.update(ids(texts, "low"))
    assert found == Counter(sent)


def test_the_oldest_go_first_in_each_queue_after_an_outage(texts: Stack, proxy: MakeProxy) -> None:
    broker = proxy(texts.vhost.amqp_url, refusing=True)
    texts.start_api(REDRIVE_AMQP_URL=broker.url, REDRIVE_API_RELAY_BATCH="7")
    sent: dict[str, list[str]] = {"texts": [], "others": []}
    for number in range(10):
        for queue, accepted in sent.items():
            accepted += submit(texts, queue, *(f"{number}-{each}" for each in range(3)))
    broker.resume()
    eventually(lambda: outbox(texts) == 0, 60, "all are published")
    assert {queue: ids(texts, queue) for queue in sent} == sent
