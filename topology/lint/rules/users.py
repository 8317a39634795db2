"""Users that should not be in a definitions file like this."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.finding import Finding


def users(broker: Broker) -> Iterator[Finding]:
    """USER-GUEST-ADMIN, USER-PLAINTEXT."""
    for user in broker.definitions.users:
        if user.name == "guest" and "administrator" in user.tags:
            yield found(
                "USER-GUEST-ADMIN",
                "",
                f"user {user.name!r}",
                "guest is an administrator, with a default password that everybody knows; only the rule "
                "that it "
                "may log in from localhost alone stands before it",
                "delete guest and make an administrator of your own",
                (f"user {user.name!r}, tags {', '.join(user.tags)}",),
            )
        if user.plaintext_password:
            yield found(
                "USER-PLAINTEXT",
                "",
                f"user {user.name!r}",
                "the password stands in the definitions in the clear",
                "replace it by password_hash: rabbitmqctl hash_password",
                (f"user {user.name!r}: field password",),
            )
