"""Signatures as the messages carry them: plain dicts. Pure.

https://docs.celeryq.dev/en/stable/userguide/canvas.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

# Any fixed uuid: ids made under it depend on their parts alone.
_NAMESPACE = UUID("6f1c4c1e-6c0e-4a55-9b44-2f9f3d6c1b6e")
Signature = Mapping[str, Any]


@dataclass(frozen=True)
class Leaf:
    """A task of a canvas. `group` is that of the chord whose header it belongs to, or None."""

    id: str
    group: str | None = None


@dataclass(frozen=True)
class Failing:
    """A result that fails, and the errbacks that are to be told of it."""

    id: str
    task: str
    errbacks: tuple[dict[str, Any], ...]


def stable_id(*parts: object) -> str:
    """A uuid that is the same for the same parts."""
    return str(uuid5(_NAMESPACE, "\0".join(str(part) for part in parts)))


def with_ids(signature: Signature, *seed: object) -> dict[str, Any]:
    """The signature with an id in each place where Celery would draw one, and the same one every time.

    So what is sent twice, since the sender was killed in between, is the same job. Ids that are there stay.
    Of a chord in a chord's header, Celery draws the group's id anew: nothing may hang on that one.
    """
    kind, options = signature.get("subtask_type"), dict(signature.get("options") or {})
    kwargs = dict(signature.get("kwargs") or {})
    if kind in ("chain", "group"):
        kwargs["tasks"] = _each_with_ids(kwargs.get("tasks") or (), *seed)
    elif kind == "chord":
        header, body = kwargs.get("header") or (), kwargs.get("body")
        if isinstance(header, Mapping):
            kwargs["header"] = with_ids(header, *seed, "header")
            options.setdefault("task_id", kwargs["header"]["options"]["task_id"])
        else:
            kwargs["header"] = _each_with_ids(header, *seed, "header")
        if body is not None:
            kwargs["body"] = with_ids(body, *seed, "body")
    if kind != "chain":  # a chain's own id is that of its last task
        options["task_id"] = options.get("task_id") or stable_id(*seed)
    if options.get("chain"):
        options["chain"] = _each_with_ids(options["chain"], *seed, "chain")
    return {**signature, "kwargs": kwargs, "options": options}


def links_with_ids(embed: Mapping[str, Any], job_id: str) -> dict[str, Any]:
    """A message's embed whose callbacks, and the rest of whose chain, are the same jobs in every run."""
    fixed = dict(embed)
    for name in ("callbacks", "chain"):
        if fixed.get(name):
            fixed[name] = _each_with_ids(fixed[name], job_id, name)
    return fixed


def leaves(signature: Signature) -> Iterator[Leaf]:
    """Every task in it that has an id, with those of the chain that follows it."""
    options, kwargs = signature.get("options") or {}, signature.get("kwargs") or {}
    match signature.get("subtask_type"):
        case "chain" | "group":
            inner = list(kwargs.get("tasks") or ())
        case "chord":
            header = kwargs.get("header") or ()
            inner = [header] if isinstance(header, Mapping) else list(header)
            inner += [kwargs["body"]] if kwargs.get("body") else []
        case _:
            inner = []
            if options.get("task_id"):
                group = options.get("group_id") if options.get("chord") else None
                yield Leaf(options["task_id"], group)
    for task in (*inner, *(options.get("chain") or ())):
        yield from leaves(task)


def failing(body: Signature) -> list[Failing]:
    """Whom the failure of a chord tells: the errbacks of its body; those of each task of a group."""
    if body.get("subtask_type") != "group":
        return [Failing(_result_id(body), _name(body), _errbacks(body))]
    own = _listed((body.get("options") or {}).get("link_error"))
    tasks = (body.get("kwargs") or {}).get("tasks") or ()
    return [Failing(_result_id(task), _name(task), _distinct((*_errbacks(task), *own))) for task in tasks]


def _errbacks(signature: Signature) -> tuple[dict[str, Any], ...]:
    own = _listed((signature.get("options") or {}).get("link_error"))
    kwargs = signature.get("kwargs") or {}
    if signature.get("subtask_type") == "chord" and kwargs.get("body"):
        own = (*own, *_errbacks(kwargs["body"]))
    if signature.get("subtask_type") == "group":
        own = (*own, *(errback for task in kwargs.get("tasks") or () for errback in _errbacks(task)))
    return _distinct(own)


def _result_id(signature: Signature) -> str:
    kwargs = signature.get("kwargs") or {}
    if signature.get("subtask_type") == "chord" and kwargs.get("body"):
        return _result_id(kwargs["body"])
    if signature.get("subtask_type") == "chain" and kwargs.get("tasks"):
        return _result_id(kwargs["tasks"][-1])
    return str((signature.get("options") or {}).get("task_id") or "")


def _name(signature: Signature) -> str:
    return str(signature.get("task") or "")


def _each_with_ids(tasks: Sequence[Signature], *seed: object) -> list[dict[str, Any]]:
    return [with_ids(task, *seed, place) for place, task in enumerate(tasks)]


def _listed(value: Any) -> tuple[dict[str, Any], ...]:
    if not value:
        return ()
    return (dict(value),) if isinstance(value, Mapping) else tuple(dict(each) for each in value)


def _distinct(errbacks: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    kept: list[dict[str, Any]] = []
    for errback in errbacks:
        if errback not in kept:
            kept.append(errback)
    return tuple(kept)
