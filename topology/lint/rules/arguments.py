"""Arguments that are refused, or that do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from topology.lint.arguments import Problem, ProblemKind, QueueType, check_exchange, check_queue
from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.definitions import Queue
from topology.lint.finding import Finding
from topology.lint.roles import queues
from topology.lint.rules.policies import wrong
from topology.lint.target import Target
from topology.lint.versions import versions
from topology.lint.words import exchange, listed
from topology.lint.words import queue as named

_CODES: dict[ProblemKind, str] = {
    "unknown": "ARG-UNKNOWN",
    "removed": "ARG-UNSUPPORTED",
    "plugin": "XTYPE-PLUGIN",
    "unsupported": "ARG-UNSUPPORTED",
    "wrong_type": "ARG-TYPE",
    "bad_value": "ARG-VALUE",
    "incomplete": "ARG-INCOMPLETE",
}
_REFUSED = "the broker refuses the queue (PRECONDITION_FAILED), and an import fails half-way"
# QUORUM-TRANSIENT and OVERFLOW-FALLBACK tell of these.
_TOLD_ELSEWHERE = ("durable", "auto_delete")


def queue_arguments(broker: Broker) -> Iterator[Finding]:
    """ARG-*, QUEUE-MODE: one finding for each code and queue."""
    for vhost, queue in queues(broker):
        kind = broker.queue_settings(queue).type.value
        grouped: dict[tuple[str, bool], list[Problem]] = {}
        for problem in check_queue(queue, kind, broker.target):
            if problem.name in _TOLD_ELSEWHERE or (problem.name == "x-overflow" and not problem.refused):
                continue
            code = _CODES[problem.kind]
            if problem.kind == "removed" and not problem.refused:
                code = "QUEUE-MODE"
            grouped.setdefault((code, problem.refused), []).append(problem)
        for (code, refused), problems in grouped.items():
            yield found(
                code,
                vhost.name,
                named(queue.name),
                _told(code, refused, kind, problems),
                _fix(code, problems),
                (named(queue.name), *(f"{problem.name} {problem.value!r:.80}" for problem in problems)),
                severity="warning" if code.startswith("ARG") and not refused else None,
                versions=versions(partial(_has, queue, kind, {(one.kind, one.name) for one in problems})),
            )


def _has(queue: Queue, kind: QueueType, problems: set[tuple[ProblemKind, str]], target: Target) -> bool:
    return any((one.kind, one.name) in problems for one in check_queue(queue, kind, target))


def _told(code: str, refused: bool, kind: str, problems: Sequence[Problem]) -> str:
    names = listed(problem.name for problem in problems)
    if code == "QUEUE-MODE":
        return f"{names} has no effect: classic queues keep nearly everything on disk"
    if code == "ARG-UNKNOWN":
        return f"RabbitMQ keeps {names} and does nothing with {'it' if len(problems) == 1 else 'them'}"
    what = (
        f"{kind} queues do not support {names}"
        if code == "ARG-UNSUPPORTED"
        else "; ".join(wrong(problem) for problem in problems)
    )
    if refused:
        return f"{_REFUSED}: {what}"
    if any(problem.name == "x-delivery-limit" for problem in problems):
        return f"taken, and not for no limit: a message is gone at its first return: {what}"
    return f"kept without effect: {what}"


def _fix(code: str, problems: Sequence[Problem]) -> str:
    if code == "QUEUE-MODE":
        return "leave it where the queue exists (arguments cannot be changed); omit it in new ones"
    if code == "ARG-UNKNOWN":
        return f"remove {listed(problem.name for problem in problems)}"
    return "; ".join(map(_right, problems))


def _right(problem: Problem) -> str:
    if problem.kind == "removed":
        return f"use {problem.expected} instead of {problem.name}"
    if problem.kind in ("wrong_type", "bad_value"):
        return f"set {problem.name} to {problem.expected}"
    return f"{problem.name}: {problem.expected}"


def exchange_arguments(broker: Broker) -> Iterator[Finding]:
    """EXCHANGE-ARGUMENT, XTYPE-PLUGIN."""
    for vhost in broker.vhosts.values():
        for one in vhost.exchanges.values():
            for problem in check_exchange(one, broker.target):
                if problem.name == "type":
                    unheard = problem.kind == "unknown" and broker.definitions.origin != "broker"
                    yield found(
                        "XTYPE-PLUGIN",
                        vhost.name,
                        exchange(one.name),
                        f"type {one.type} needs {'a plugin' if unheard else problem.expected}: without it "
                        "the exchange is refused, and an import fails before any queue is made",
                        "enable the plugin on every node before importing",
                        (f"{exchange(one.name)} ({one.type})",),
                        severity="warning" if unheard else None,
                    )
                else:
                    yield found(
                        "EXCHANGE-ARGUMENT",
                        vhost.name,
                        exchange(one.name),
                        f"{'refused' if problem.refused else 'kept without effect'}: {wrong(problem)}",
                        f"remove or correct {problem.name}",
                        (f"{exchange(one.name)} ({one.type})", f"{problem.name} {problem.value!r:.80}"),
                        severity="error" if problem.refused else "info",
                    )
