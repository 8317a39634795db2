"""RabbitMQ releases, as far as what may be declared depends on them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from topology.entities import Policy
from topology.errors import InvalidTopologyError
from topology.lint.definitions import Policy as DefinedPolicy

Release = tuple[int, int]
P = TypeVar("P", Policy, DefinedPolicy)
OLDEST: Release = (3, 10)
# Earlier releases refuse such a policy. https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
POLICY_KEYS_SINCE: dict[str, Release] = {"consumer-timeout": (3, 12)}


def parse_release(text: str) -> Release:
    """(major, minor) of `3.10`, `4.3.1`, …

    Raises:
        InvalidTopologyError: it is no version.
    """
    found = re.match(r"(\d+)\.(\d+)(\D|$)", text)
    if found is None:
        raise InvalidTopologyError(f"{text!r} is no RabbitMQ release; say for example 3.10 or 4.3")
    return int(found[1]), int(found[2])


def known_policies(
    policies: Iterable[P], release: Release
) -> tuple[tuple[P, ...], tuple[tuple[str, str], ...]]:
    """The policies that a release takes, and what had to be left out: (policy, key) pairs."""
    known, left_out = [], []
    for policy in policies:
        unknown = {key for key in policy.definition if release < POLICY_KEYS_SINCE.get(key, OLDEST)}
        left_out += [(policy.name, key) for key in sorted(unknown)]
        definition = {key: value for key, value in policy.definition.items() if key not in unknown}
        if definition:
            known.append(replace(policy, definition=definition))
    return tuple(known), tuple(left_out)
