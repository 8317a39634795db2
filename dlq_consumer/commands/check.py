"""`dlq check`"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial

import click

from dlq_consumer import printing
from dlq_consumer.commands.running import Load, fail, management_url
from dlq_consumer.harmed import ADVICE as MEND
from dlq_consumer.harmed import harmed_queues
from dlq_consumer.stuck import ADVICE
from storage import regrouping
from storage.errors import MigrationError, StorageError
from storage.groups import RULE
from storage.pool import migrated_pool, ready, where
from storage.settings import StorageSettings
from topology import exits
from topology.address import AmqpAddress
from topology.broker_errors import BrokerAway, ChannelClosed, IsStream
from topology.connection import BrokerConnection, connect
from topology.consumers import streams
from topology.drained import drained_state
from topology.entities import Entities, compile_topology
from topology.errors import InvalidTopologyError
from topology.management import Management, ManagementError
from topology.missing_ways import MissingWay, missing_ways
from topology.names import dead_letter_queues
from topology.plan.look import look
from topology.settings import TopologySettings, load_topology
from topology.stuck import stuck_letters, surely_stuck
from topology.watched import Place


class Report:
    """Says one thing a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def good(self, thing: str, detail: str = "") -> bool:
        return self._say(thing, f"OK ({detail})" if detail else "OK", detail, ok=True)

    def bad(self, thing: str, problem: str) -> bool:
        return self._say(thing, problem, problem, ok=False)

    def _say(self, thing: str, words: str, detail: str, *, ok: bool) -> bool:
        if self._as_json:
            printing.json_line({"thing": thing, "ok": ok, "detail": detail})
        else:
            click.echo(f"{thing}: {words}")
        return ok


@click.command()
@click.option(
    "--running", is_flag=True, help="Fail also when a queue has no consumer: is `dlq consume` at work?"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: thing, ok, detail.")
@click.pass_obj
def check(load: Load, running: bool, as_json: bool) -> None:
    """One `thing: OK` a line; exit 1 with the next command to run. Starts and changes nothing.

    Without --running also: letters that the broker cannot hand on, missing exchanges and bindings,
    policies that make a queue lose messages, and groups that an older release made.

    Example, as a container's health check: dlq check --running
    """
    report = Report(as_json=as_json)
    storage, broker = load(StorageSettings), load(TopologySettings)
    management = management_url(broker)
    home = broker.address.vhost
    try:
        places = [Place(home, queue) for queue in dead_letter_queues(load_topology(broker))]
    except InvalidTopologyError as error:
        fail(str(error), exits.USAGE)
    by_vhost: dict[str, dict[str, None]] = {home: {}}
    for place in (*places, *broker.watched):
        by_vhost.setdefault(place.vhost, {})[place.queue] = None
    checks = [_database(report, storage), *(() if running else (_groups(report, storage),))]
    for vhost, queues in by_vhost.items():
        odd = frozenset() if running else _streams(management, vhost)
        address = replace(broker.address, vhost=vhost)
        checks.append(_queues(report, address, list(queues), odd, running=running))
    results = [asyncio.run(each) for each in checks]  # a list: each is to say its lines
    if not running:  # that is about one process, and asked often
        results.append(_seen_by_management(report, broker, management))
    if not all(results):
        sys.exit(exits.FAILED)


async def _database(report: Report, settings: StorageSettings) -> bool:
    name = f"database {where(settings)}"
    try:
        level = await ready(settings)
    except (MigrationError, StorageError) as error:
        return report.bad(name, str(error))
    return report.good(name, f"level {level}")


async def _groups(report: Report, settings: StorageSettings) -> bool:
    """Never a fault: letters of an older rule are found all the same."""
    try:
        async with migrated_pool(settings, "redrive-check") as pool:
            found = await regrouping.census(pool)
    except (MigrationError, StorageError):
        return True  # told of already
    if found is None:
        return True
    if found.old:
        old = f"{found.old} of {found.groups} by an older rule. Run: dlq groups regroup"
        return report.good("groups", old)
    return report.good("groups", f"{found.groups}, by rule {RULE}")


def _streams(url: str, vhost: str) -> frozenset[str]:
    try:
        with Management(url) as management:
            return streams(management, vhost)
    except ManagementError:
        return frozenset()  # told of with the stuck letters


async def _queues(
    report: Report, address: AmqpAddress, queues: list[str], odd: Collection[str], *, running: bool
) -> bool:
    try:
        connection = await connect(address, "redrive-dlq-check")
    except BrokerAway as error:
        return report.bad(f"broker {address}", str(error))
    report.good(f"broker {address}")
    try:
        bad = [report.bad(f"queue {queue}", str(IsStream(0, ""))) for queue in queues if queue in odd]
        left = [queue for queue in queues if queue not in odd]
        return all([*bad, *[await _queue(report, connection, queue, running=running) for queue in left]])
    finally:
        await connection.close()


def _seen_by_management(report: Report, settings: TopologySettings, url: str) -> bool:
    topology = load_topology(settings)
    entities = compile_topology(topology, settings.time_scale)
    try:
        with Management(url) as management:
            stuck = surely_stuck(partial(stuck_letters, management, settings.address.vhost))
            harmed = harmed_queues(management, settings.address.vhost, topology, entities)
        missing = list(_missing(settings, entities))
    except ManagementError as error:
        return report.bad("stuck letters", str(error))
    for queue, count in stuck.items():
        report.bad(f"queue {queue}", f"{count} dead letters {ADVICE}")
    for way in missing:
        report.bad(f"{way.kind} {way.name}", "it is missing. Run: topology apply")
    for queue, what in harmed:
        report.bad(f"queue {queue}", f"{what}. {MEND}")
    if not stuck:
        report.good("stuck letters", "none")
    if not missing:
        report.good("exchanges and bindings")
    if not harmed:
        report.good("policies in force")
    return not stuck and not missing and not harmed


def _missing(settings: TopologySettings, entities: Entities) -> Iterator[MissingWay]:
    """Said before a letter or a retry needs them: it would stay in its queue.

    Raises:
        ManagementError
    """
    have = look(settings, entities)
    return missing_ways(entities, have.queues, have.exchanges, have.bindings)


async def _queue(report: Report, connection: BrokerConnection, queue: str, *, running: bool) -> bool:
    name = f"queue {queue}"
    try:
        state = await (drained_state(connection, queue) if running else connection.inspect(queue))
    except (ChannelClosed, BrokerAway) as error:
        return report.bad(name, f"{error}. Run: topology apply")
    if running and state.consumers == 0:
        return report.bad(name, f"no consumer, {state.messages} letters wait. Run: dlq consume")
    return report.good(name, f"{state.messages} letters wait, {state.consumers} consumers")
