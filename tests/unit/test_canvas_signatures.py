"""What is read from signatures, and the ids that are put into them: against Celery's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, chain, chord, group, signals
from celery.backends.base import DisabledBackend
from celery.backends.cache import CacheBackend
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps

from workers.canvas.signatures import Leaf, failing, leaves, links_with_ids, with_ids
from workers.results.chorded import DerivedChords, chorded


@pytest.fixture(scope="module")
def app() -> Iterator[Celery]:
    """An ordinary app, whose messages go nowhere."""
    made = Celery("plain", broker="memory://", backend="cache+memory://", set_as_current=False)

    @made.task(name="t")
    def task(*_args: Any) -> None:
        """Never called here."""

    yield made
    made.close()


def plain(signature: Any) -> dict[str, Any]:
    """As a message carries it."""
    found: dict[str, Any] = json.loads(dumps(signature))
    return found


def shapes(app: Celery) -> dict[str, Any]:
    def task() -> Any:
        return app.signature("t")

    return {
        "task": task(),
        "chain": chain(task(), task(), task(), app=app),
        "group": group([task(), task()], app=app),
        "chord": chord([task(), task()], task(), app=app),
        "chord of chains": chord([chain(task(), task(), app=app)] * 2, task(), app=app),
        "chain with a chord": chain(task(), group([task(), task()], app=app), task(), task(), app=app),
        "chord to a chain": chord([task()], chain(task(), task(), app=app), app=app),
        "chord to a chord": chord([task()], chord([task(), task()], task(), app=app), app=app),
        "chord of chords": chord([chord([task(), task()], task(), app=app), task()], task(), app=app),
        "group of chains": group([chain(task(), task(), app=app)] * 2, app=app),
    }


def sent(app: Celery, signature: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Ids and groups of the messages that Celery publishes at once, with those of what they carry along."""
    published: list[tuple[str, str | None]] = []

    def note(headers: Any = None, body: Any = None, **_: Any) -> None:
        published.append((headers["id"], headers["group"]))
        embed: dict[str, Any] = json.loads(dumps(body))[2]
        rest = [*(embed["chain"] or ()), *([embed["chord"]] if embed["chord"] else ())]
        published.extend((leaf.id, leaf.group) for each in rest for leaf in leaves(each))

    signals.before_task_publish.connect(note, weak=False)
    try:
        app.signature(signature).apply_async()
    finally:
        signals.before_task_publish.disconnect(note)
    return published


@pytest.mark.parametrize("name", shapes(Celery("names", set_as_current=False)))
def test_what_is_sent_twice_has_the_same_ids(app: Celery, name: str) -> None:
    signature = plain(shapes(app)[name])
    first, second, other = ([id_ for id_, _ in sent(app, with_ids(signature, "job", n))] for n in (0, 0, 1))
    assert first == second
    assert first
    assert set(first).isdisjoint(other)


def test_ids_that_are_there_stay(app: Celery) -> None:
    frozen = chain(app.signature("t"), app.signature("t", task_id="mine"), app=app)
    assert "mine" in {leaf.id for leaf in leaves(with_ids(plain(frozen), "job"))}


NESTED = st.recursive(
    st.just("task"),
    lambda inner: st.tuples(
        st.sampled_from(["chain", "group", "chord"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def built(shape: Any) -> dict[str, Any]:
    if shape == "task":
        return {"task": "t", "args": [], "kwargs": {}, "options": {}, "subtask_type": None}
    kind, inner = shape
    tasks = [built(each) for each in inner]
    kwargs = {"header": tasks, "body": built("task")} if kind == "chord" else {"tasks": tasks}
    return {"task": f"celery.{kind}", "args": [], "kwargs": kwargs, "options": {}, "subtask_type": kind}


def count(shape: Any) -> int:
    return 1 if shape == "task" else sum(map(count, shape[1])) + (shape[0] == "chord")


@given(NESTED)
def test_every_task_of_a_canvas_gets_an_id_of_its_own(shape: Any) -> None:
    found = [leaf.id for leaf in leaves(with_ids(built(shape), "job"))]
    assert len(found) == len(set(found)) == count(shape)


def test_links_and_the_rest_of_a_chain_get_ids_and_errbacks_do_not() -> None:
    embed = {
        "callbacks": [built("task")],
        "errbacks": [built("task")],
        "chain": [built("task")],
        "chord": None,
    }
    fixed = links_with_ids(embed, "job")
    assert fixed == links_with_ids(embed, "job")
    assert [len(list(leaves(fixed[name][0]))) for name in ("callbacks", "errbacks", "chain")] == [1, 0, 1]
    assert links_with_ids({"callbacks": None, "chain": None}, "job") == {"callbacks": None, "chain": None}


def test_leaves_name_the_chord_they_are_members_of(app: Celery) -> None:
    published = sent(app, plain(shapes(app)["chord of chords"]))
    of_messages = [group for _, group in published[:1]]
    # The inner chord's body, which its members carry along, is a member of the outer chord.
    outer = {group for _, group in published} - {None, *of_messages}
    assert len(outer) == 1
    assert list(leaves({"options": {"task_id": "a", "group_id": "of a group"}})) == [Leaf("a")]


def test_the_errbacks_of_a_body_are_those_of_its_result(app: Celery) -> None:
    def errbacks(body: Any) -> list[list[str]]:
        return [[errback["task"] for errback in told.errbacks] for told in failing(plain(body))]

    def task(*names: str) -> Any:
        made = app.signature("t")
        for name in names:
            made.link_error(app.signature(name))
        return made

    assert errbacks(task("a", "b")) == [["a", "b"]]
    assert errbacks(task()) == [[]]
    assert errbacks(group([task("a"), task("b", "b")], app=app)) == [["a"], ["b"]]
    assert errbacks(chord([task("of a member")], task("of the body"), app=app)) == [["of the body"]]


def test_every_backends_chords_are_ours(app: Celery) -> None:
    for kind in (CacheBackend, DisabledBackend):
        made = chorded(kind)
        assert made is chorded(made) is chorded(kind)
        backend = made(app=app, url="memory://")
        # A backend with counters puts its own in as an attribute of the instance.
        assert backend.apply_chord.__func__ is DerivedChords.apply_chord
        assert backend.on_chord_part_return.__func__ is DerivedChords.on_chord_part_return
