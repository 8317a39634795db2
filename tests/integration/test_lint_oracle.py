"""The broker is the oracle: messages go where the linter says, in random topologies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.support.oracle.cases import (
    Refused,
    Tree,
    bring,
    case_files,
    drives,
    limited,
    modelled,
    overflows,
    parts,
    with_one_short,
)
from tests.support.oracle.compare import compare, compare_with, limits_of, report
from tests.support.oracle.drive import prepare, release
from tests.support.oracle.examples import KNOWN, LOOP_OF_TWO, Known
from tests.support.oracle.site import Site, open_site
from tests.support.oracle.topologies import VHOST, Example, examples
from tests.support.servers import Servers
from tests.support.waiting import eventually
from topology.lint.broker import Broker
from topology.lint.settle import settle
from topology.lint.target import Target

# A campaign by hand: REDRIVE_ORACLE_EXAMPLES=5000 makes as many random ones, other ones each time.
EXAMPLES = int(os.environ.get("REDRIVE_ORACLE_EXAMPLES", "0"))


@pytest.fixture(scope="module")
def site(servers: Servers) -> Iterator[Site]:
    with open_site(servers.urls.amqp, servers.urls.management) as opened:
        yield opened


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_known(site: Site, broker_release: tuple[int, int], known: Known) -> None:
    """Linter and broker do what is written down."""
    if not known.holds_for(broker_release):
        pytest.skip("holds for other releases")
    [drive] = known.example.drives
    broker = Broker(known.example.definitions, Target(*broker_release))
    said = settle(broker, VHOST, drive.queue, drive.key, drive.way, dict(drive.headers))
    assert (said.resting, said.kept, said.undecided) == (known.rests, known.kept, ())
    found = compare(site, known.example, broker_release)
    assert found.tried, f"not tried: {list(found.skipped)}"
    assert not found.disagreements, report(known.example, found.disagreements, broker_release)


def test_a_loop_of_two_delays_goes_on_for_ever_on_3_10_alone(
    site: Site, broker_release: tuple[int, int]
) -> None:
    example = LOOP_OF_TWO.example
    [drive] = example.drives
    broker = Broker(example.definitions, Target(*broker_release))
    said = settle(broker, VHOST, drive.queue, drive.key, drive.way, {})
    if broker_release >= (3, 13):
        assert not compare(site, example, broker_release).disagreements
        assert said.dropped == {"cycle": 1}
        return
    assert "still goes on" in said.undecided[0]
    limits = limits_of(broker, VHOST)
    site.build(example.definitions)
    release(site, prepare(site, drive, limits), limits)
    eventually(lambda: _turns(site, "a") >= 20, 10, "the message has gone round 20 times", every_s=0.002)


def test_at_least_once_keeps_what_the_linter_says(servers: Servers, broker_release: tuple[int, int]) -> None:
    """Kept and lost look alike over AMQP: only the broker's own count tells them apart, seconds later."""
    cases = [known for known in KNOWN if known.holds_for(broker_release) and _at_least_once(known)]
    with ExitStack() as stack:
        sites = [stack.enter_context(open_site(servers.urls.amqp, servers.urls.management)) for _ in cases]
        for site, known in zip(sites, cases, strict=True):
            assert not compare(site, known.example, broker_release).disagreements
        expected = {known.name: dict(known.kept) for known in cases}

        def as_said() -> bool:
            assert _kept(sites, cases) == expected
            return True

        eventually(as_said, 20, "the broker counts the letters kept", every_s=0.5)
    assert any(expected.values())
    assert not all(expected.values())


@pytest.mark.skipif(not case_files(), reason="the folder of definitions files is not there")
@pytest.mark.parametrize("file", case_files(), ids=lambda file: file.stem)
class TestCaseFile:
    """Messages that leave the queues of a real definitions file go where the linter says."""

    def test_rejected_expired_and_returned(
        self, servers: Servers, broker_release: tuple[int, int], file: Path
    ) -> None:
        tried = 0
        for tree in _trees(file, broker_release):
            with open_site(servers.urls.amqp, servers.urls.management) as site:
                definitions = modelled(VHOST, tree)
                example = Example(definitions, drives(definitions))
                found = compare_with(site, example, broker_release, partial(_bring, site, tree))
            assert not found.disagreements, report(example, found.disagreements, broker_release)
            tried += len(found.tried)
        if not tried:
            pytest.skip("nothing to drive")

    def test_overflowed(self, servers: Servers, broker_release: tuple[int, int], file: Path) -> None:
        tried = 0
        for tree in _trees(file, broker_release):
            for name in limited(tree, broker_release):
                shortened = with_one_short(tree, name)
                with open_site(servers.urls.amqp, servers.urls.management) as site:
                    definitions = modelled(VHOST, shortened)
                    example = Example(definitions, overflows(definitions, name))
                    found = compare_with(site, example, broker_release, partial(_bring, site, shortened))
                assert not found.disagreements, report(example, found.disagreements, broker_release)
                tried += len(found.tried)
        if not tried:
            pytest.skip("nothing to drive")


def _bring(site: Site, tree: Tree) -> None:
    try:
        bring(site, tree)
    except Refused as refused:
        pytest.skip(f"this broker refuses the file: {refused}")


def _trees(file: Path, release: tuple[int, int]) -> list[Tree]:
    try:
        return list(parts(file, release))
    except ValueError:
        pytest.skip("not JSON")


@pytest.mark.timeout(EXAMPLES * 3 + 300)
@settings(
    max_examples=EXAMPLES or 60,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_messages_that_leave_a_queue_go_where_the_linter_says(
    site: Site, broker_release: tuple[int, int], data: st.DataObject
) -> None:
    example = data.draw(examples(broker_release), "example")
    found = compare(site, example, broker_release)
    for _, said in found.tried:
        event(f"rests: {bool(said.resting)}, dropped: {','.join(said.dropped)}, kept: {bool(said.kept)}")
    for why, count in found.skipped.items():
        for _ in range(count):
            event(f"not tried: {why}")
    assert not found.disagreements, report(example, found.disagreements, broker_release)


def _turns(site: Site, queue: str) -> int:
    """How often the message that is in the queue has expired there; 0 without one."""
    method, properties, _ = site.channel.basic_get(queue)
    if method is None:
        return 0
    site.channel.basic_reject(method.delivery_tag, requeue=True)
    deaths = properties.headers["x-death"]
    return sum(death["count"] for death in deaths if death["queue"] == queue)


def _at_least_once(known: Known) -> bool:
    return "x-dead-letter-strategy" in known.example.definitions.queues[0].arguments or bool(known.kept)


def _kept(sites: Sequence[Site], cases: Sequence[Known]) -> dict[str, dict[str, int]]:
    return {
        known.name: {queue: kept for queue in site.queues if (kept := site.stuck(queue))}
        for site, known in zip(sites, cases, strict=True)
    }
