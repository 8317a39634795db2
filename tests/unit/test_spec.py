"""Every field of the spec is checked when it is built; an error names the owner, the field and the value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from topology.entities import compile_topology
from topology.errors import InvalidTopologyError
from topology.spec import JobType, Ladder, Topology, WorkQueue

NAN = float("nan")
CLASSIC: dict[str, Any] = {"type": "classic", "classic_reason": "priorities"}


class Payload(BaseModel):
    pass


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "letters"), ("a b", "letters"), ("a..b", "letters"), ("a.", "letters"), ("a/b", "letters"),
     ("amq.x", "reserved"), ("redrive.x", "reserved"), ("x" * 240, "bytes"), ("é", "letters"),
     (7, "letters"), (None, "letters"), (b"x", "letters")],
)  # fmt: skip
def test_a_bad_name_is_refused_of_a_queue_and_of_a_shared_ladder(name: Any, words: str) -> None:
    with pytest.raises(InvalidTopologyError, match=f": name is .*{words}"):
        WorkQueue(name)
    if name is not None:
        with pytest.raises(InvalidTopologyError, match=rf"queue 'a': ladder\.shared is .*{words}"):
            WorkQueue("a", Ladder(shared=name))


def test_a_very_long_name_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidTopologyError) as refused:
        WorkQueue("a", description=["x" * 10_000])  # type: ignore[arg-type]
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("steps", "longest"), [(1, 231), (7, 231), (8, 230), (12, 222), (20, 206)])
@pytest.mark.parametrize("shared", [False, True])
def test_the_longest_name_makes_no_name_or_key_that_amqp_cannot_carry(
    steps: int, longest: int, shared: bool
) -> None:
    # 4,095 ms: the most digits and an "ms" after them.
    ladder = Ladder(tick_ms=4_095, steps=steps, shared="s" * longest if shared else None)
    entities = compile_topology(Topology((WorkQueue("x" * longest, ladder),)))

    names = [queue.name for queue in entities.queues] + [exchange.name for exchange in entities.exchanges]
    keys = [binding.routing_key for binding in entities.bindings]
    assert max(len(word.encode()) for word in (*names, *keys)) <= 255
    with pytest.raises(InvalidTopologyError, match=f"at most {longest} bytes"):
        WorkQueue("x" * (longest + 1), Ladder(steps=steps))
    with pytest.raises(InvalidTopologyError, match=f"shared is .* at most {longest} bytes"):
        WorkQueue("x", Ladder(steps=steps, shared="s" * (longest + 1)))


WHOLE = ["delivery_limit", "prefetch", "watermark", "max_priority"]
NUMBERS = ["message_ttl_s", "consumer_timeout_s", "time_limit_s"]


@pytest.mark.parametrize("value", [0, -1, 10**12, "5", True, NAN, 1.5, [1], b"1"])
@pytest.mark.parametrize("field", WHOLE)
def test_what_is_no_whole_number_within_bounds_names_queue_and_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidTopologyError, match=rf"queue 'payments': {field} is .*; it must be a whole"):
        WorkQueue("payments", **CLASSIC, **{field: value})


@pytest.mark.parametrize("value", [0, -0.5, 10**12, "5", True, NAN, float("inf"), [1]])
@pytest.mark.parametrize("field", NUMBERS)
def test_what_is_no_number_within_bounds_names_queue_and_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidTopologyError, match=rf"queue 'payments': {field} is .*; it must be a number"):
        WorkQueue("payments", **{field: value})


@pytest.mark.parametrize("field", ["delivery_limit", "prefetch", "watermark", "time_limit_s"])
def test_what_must_be_given_is_not_none(field: str) -> None:
    with pytest.raises(InvalidTopologyError, match=f"{field} is None"):
        WorkQueue("payments", **{field: None})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [("ladder", None, "a Ladder"), ("ladder", 12, "a Ladder"), ("type", "stream", "quorum or classic"),
     ("type", ["classic"], "quorum or classic"), ("single_active_consumer", 1, "True or False"),
     ("single_active_consumer", "no", "True or False"), ("description", None, "a text"),
     ("classic_reason", 5, "a text")],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_names_queue_and_field(field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidTopologyError, match=rf"queue 'payments': {field} is .*; it must be {words}"):
        WorkQueue("payments", **{field: value})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"type": "classic"}, "classic_reason is empty; say why"),
        ({"type": "classic", "classic_reason": " "}, "classic_reason is empty; say why"),
        ({"classic_reason": "old"}, "classic_reason is set, but the type is quorum"),
        ({"max_priority": 5}, "max_priority is 5, but only classic queues take it"),
        ({**CLASSIC, "delivery_limit": 5}, "delivery_limit is 5, but only quorum queues have one"),
        ({"time_limit_s": 1_800}, "below the consumer timeout of 1800 s"),
        ({"consumer_timeout_s": 900}, "below the consumer timeout of 900 s"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTopologyError, match=f"queue 'payments': .*{words}"):
        WorkQueue("payments", **fields)


def test_a_longer_consumer_timeout_lets_a_task_run_longer() -> None:
    queue = WorkQueue("reports", time_limit_s=7_200, consumer_timeout_s=7_201)
    assert queue.time_limit_s == 7_200


@pytest.mark.parametrize(
    ("field", "value"),
    [("tick_ms", 0), ("tick_ms", 9), ("tick_ms", 60_001), ("tick_ms", 0.5), ("tick_ms", "250"),
     ("steps", 0), ("steps", 21), ("steps", True), ("steps", None), ("attempts", 0), ("attempts", 2.0),
     ("attempts", 1_001), ("jitter", -0.1), ("jitter", 1.1), ("jitter", NAN), ("jitter", True),
     ("jitter", "0.5")],
)  # fmt: skip
def test_a_ladder_out_of_bounds_names_the_queue_that_it_was_given_to(field: str, value: Any) -> None:
    with pytest.raises(InvalidTopologyError, match=rf"queue 'payments': ladder\.{field} is .*; it must be"):
        WorkQueue("payments", Ladder(**{field: value}))


def test_a_ladder_whose_top_step_is_no_ttl_is_refused() -> None:
    with pytest.raises(InvalidTopologyError, match=r"queue 'a': ladder\.steps is 18: the top step of"):
        WorkQueue("a", Ladder(tick_ms=60_000, steps=18))


@pytest.mark.parametrize(
    ("top_s", "tick_ms", "steps"), [(0.1, 250, 1), (512, 250, 12), (513, 250, 13), (1, 1_000, 1)]
)
def test_a_ladder_reaches_up_to_its_top(top_s: float, tick_ms: int, steps: int) -> None:
    assert Ladder.up_to(top_s, tick_ms, jitter=0.25) == Ladder(tick_ms, steps, jitter=0.25)


@pytest.mark.parametrize("top_s", [10**9, 10**30, float("inf")])
def test_a_top_that_no_ladder_reaches_is_refused_by_the_queue(top_s: float) -> None:
    with pytest.raises(InvalidTopologyError, match=r"queue 'a': ladder\.steps is "):
        WorkQueue("a", Ladder.up_to(top_s))


@pytest.mark.parametrize("top_s", [0, -1, NAN, "60", None, True])
def test_a_top_that_is_no_delay_is_refused(top_s: Any) -> None:
    with pytest.raises(InvalidTopologyError, match=r"^ladder\.top_s is "):
        Ladder.up_to(top_s)


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ((WorkQueue("a"), WorkQueue("a")), "queue 'a' and queue 'a' both derive the name 'a'"),
        ((WorkQueue("a"), WorkQueue("a.dlq")), "queue 'a' and queue 'a.dlq' both derive the name 'a.dlq'"),
        ((WorkQueue("a"), WorkQueue("a.retry.8s")), "both derive the name 'a.retry.8s'"),
        ((WorkQueue("a"), WorkQueue("a.due")), "both derive the name 'a.due'"),
        ((WorkQueue("a"), WorkQueue("b", Ladder(shared="a"))),
         "queue 'a' and ladder.shared 'a' of queue 'b' both derive the name 'a.due'"),
        ((WorkQueue("a", Ladder(shared="s")), WorkQueue("s.due", Ladder(shared="s"))),
         "ladder.shared 's' of queue 'a' and queue 's.due' both derive the name 's.due'"),
        ((WorkQueue("a", Ladder(shared="s")), WorkQueue("b", Ladder(steps=3, shared="s"))),
         "queue 'b': ladder.steps is 3; it must be 12, as in queue 'a', which shares the ladder 's'"),
        ((WorkQueue("a", Ladder(shared="s")), WorkQueue("b", Ladder(tick_ms=100, shared="s"))),
         "queue 'b': ladder.tick_ms is 100; it must be 250"),
    ],
)  # fmt: skip
def test_queues_that_get_into_each_others_way_are_refused(queues: tuple[WorkQueue, ...], words: str) -> None:
    with pytest.raises(InvalidTopologyError) as refused:
        Topology(queues)
    assert words in str(refused.value)


def test_queues_that_share_a_ladder_may_differ_in_what_is_not_on_the_broker() -> None:
    Topology((WorkQueue("a", Ladder(shared="a", attempts=2)), WorkQueue("b", Ladder(shared="a", jitter=0))))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((),), "no work queue"),
        (("abc",), "queues is 'abc'; it must be a tuple of WorkQueue"),
        ((None,), "queues is None"),
        ((("payments",),), r"queues\[0\] is 'payments'; it must be a WorkQueue"),
        (((WorkQueue("a"),), ("send",)), r"jobs\[0\] is 'send'; it must be a JobType"),
        (
            ((WorkQueue("email"),), (JobType("send", "emial", Payload),)),
            "job 'send': queue is 'emial'; .* email",
        ),
        (((WorkQueue("a"),), (JobType("x", "a", Payload),) * 2), "job 'x' is in the catalogue twice"),
    ],
)
def test_a_topology_of_something_else_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidTopologyError, match=words):
        Topology(*arguments)


def test_a_list_of_queues_is_a_tuple_afterwards() -> None:
    topology = Topology([WorkQueue("a")], [])  # type: ignore[arg-type]
    assert (topology.queues, topology.jobs) == ((WorkQueue("a"),), ())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("", "a", Payload), "job '': name is ''"), ((None, "a", Payload), "job None: name is None"),
     (("x", None, Payload), "job 'x': queue is None"), (("x", "a", dict), "job 'x': payload is"),
     (("x", "a", Payload()), "job 'x': payload is"), (("x", "a", Payload, 1), "job 'x': summary is 1")],
)  # fmt: skip
def test_a_job_type_names_its_wrong_field(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidTopologyError, match=words):
        JobType(*arguments)
