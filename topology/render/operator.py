"""Entities as manifests for RabbitMQ's messaging topology operator on Kubernetes, and back.

https://www.rabbitmq.com/kubernetes/operator/using-topology-operator
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from topology.entities import Binding, Entities, Exchange, Policy, Queue
from topology.errors import ManifestError

API_VERSION = "rabbitmq.com/v1beta1"
# RFC 1123 subdomains, the names of Kubernetes' objects, are at most 253 characters.
NAME_CHARACTERS = 253
_HASH_CHARACTERS = 10
_PLAIN_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9./\-]*")
# What YAML 1.1, which Kubernetes reads, takes for another value than a text.
_NO_TEXT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
Manifest = dict[str, Any]


def manifests(
    entities: Entities, *, vhost: str, cluster: str, namespace: str | None = None
) -> list[Manifest]:
    """One object per entity, in the order in which they are to be declared.

    Args:
        cluster: the RabbitmqCluster's name.
        namespace: the cluster's, where it is not that of the manifests.
    """
    reference = {"name": cluster} | ({"namespace": namespace} if namespace else {})

    def made(kind: str, name: str, spec: dict[str, Any]) -> Manifest:
        return {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {"name": name},
            "spec": {**spec, "vhost": vhost, "rabbitmqClusterReference": reference},
        }

    return [
        *(made("Exchange", object_name(each.name), _exchange(each)) for each in entities.exchanges),
        *(made("Queue", object_name(each.name), _queue(each)) for each in entities.queues),
        *(made("Binding", _binding_name(each), _binding(each)) for each in entities.bindings),
        *(made("Policy", object_name(each.name), _policy(each)) for each in entities.policies),
    ]


def object_name(name: str, *, always_hashed: str = "") -> str:
    """A name that Kubernetes takes; where letters had to change, a hash keeps it unique."""
    if not always_hashed and len(name) <= NAME_CHARACTERS and _PLAIN_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256((always_hashed or name).encode()).hexdigest()[:_HASH_CHARACTERS]
    words = [word.strip("-") for word in re.sub(r"[^a-z0-9.]+", "-", name.lower()).split(".")]
    readable = ".".join(word for word in words if word)[: NAME_CHARACTERS - _HASH_CHARACTERS - 1].rstrip("-.")
    return f"{readable}-{digest}" if readable else digest


def manifests_text(documents: Iterable[Manifest]) -> str:
    """A YAML stream, a document for each object."""
    return "".join("---\n" + "".join(f"{line}\n" for line in _lines(document)) for document in documents)


def read_manifests(documents: Iterable[Mapping[str, Any]]) -> Entities:
    """The entities that these objects, as a YAML parser gives them, stand for.

    Raises:
        ManifestError: an object of another kind, or with a setting that no entity of a topology has.
    """
    exchanges, queues, bindings, policies = [], [], [], []
    for document in documents:
        kind, spec = document.get("kind"), document.get("spec")
        if document.get("apiVersion") != API_VERSION or not isinstance(spec, Mapping):
            raise ManifestError(f"{_where(document)}: no object of {API_VERSION} with a spec")
        try:
            if kind == "Exchange":
                _refuse_passing(document, spec)
                exchanges.append(Exchange(spec["name"], spec["type"], dict(spec.get("arguments") or {})))
            elif kind == "Queue":
                _refuse_passing(document, spec)
                typed = {"x-queue-type": spec["type"]} | dict(spec.get("arguments") or {})
                if typed["x-queue-type"] != spec["type"]:
                    raise ManifestError(f"{_where(document)}: type is not that of its arguments")
                queues.append(Queue(spec["name"], typed))
            elif kind == "Binding":
                bindings.append(
                    Binding(spec["source"], spec["destination"], spec["destinationType"], spec["routingKey"])
                )
            elif kind == "Policy":
                policies.append(
                    Policy(
                        spec["name"],
                        spec["pattern"],
                        dict(spec["definition"]),
                        spec["applyTo"],
                        spec["priority"],
                    )
                )
            else:
                raise ManifestError(f"{_where(document)}: a topology has no such kind")
        except KeyError as error:
            raise ManifestError(f"{_where(document)}: its spec has no {error}") from error
    return Entities(tuple(exchanges), tuple(queues), tuple(bindings), tuple(policies))


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": True,
        "autoDelete": False,
        **_arguments(exchange.arguments),
    }


def _queue(queue: Queue) -> dict[str, Any]:
    # The type twice: releases of the operator differ in which of the two they hand to the broker.
    return {
        "name": queue.name,
        "type": queue.type,
        "durable": True,
        "autoDelete": False,
        **_arguments(queue.arguments),
    }


def _binding(binding: Binding) -> dict[str, Any]:
    return {
        "source": binding.source,
        "destination": binding.destination,
        "destinationType": binding.kind,
        "routingKey": binding.routing_key,
    }


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "pattern": policy.pattern,
        "applyTo": policy.apply_to,
        "priority": policy.priority,
        "definition": dict(policy.definition),
    }


def _arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"arguments": dict(arguments)} if arguments else {}


def _binding_name(binding: Binding) -> str:
    """A binding has no name of its own, and two may differ in their key alone."""
    whole = "\0".join((binding.source, binding.kind, binding.destination, binding.routing_key))
    return object_name(f"{binding.source}-to-{binding.destination}", always_hashed=whole)


def _refuse_passing(document: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    if not spec.get("durable") or spec.get("autoDelete"):
        raise ManifestError(f"{_where(document)}: a topology's queues and exchanges are durable and stay")


def _where(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"{document.get('kind')} {name!r}"


def _lines(mapping: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in mapping.items():
        shown = _scalar(key)
        if isinstance(value, Mapping) and value:
            yield f"{indent}{shown}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{shown}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    """As JSON has it, which is YAML too; a text that is one in every YAML goes without quotes."""
    if isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) and value.lower() not in _NO_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)
