"""The catalogue of findings: stable codes, each with a page in `topology/lint/pages`."""

from __future__ import annotations

from dataclasses import dataclass

from topology.lint.finding import Finding, Severity


@dataclass(frozen=True)
class Code:
    """One kind of finding.

    Attributes:
        severity: what it has unless a rule says otherwise for one finding.
        versions: the RabbitMQ versions it holds for, likewise.
    """

    code: str
    severity: Severity
    title: str
    versions: str = "3.10+"


_ALL = (
    # Where dead letters go.
    Code("DLX-MISSING", "error", "the dead-letter exchange does not exist"),
    Code("DLX-UNROUTABLE", "error", "no binding takes the dead letters"),
    Code("DLX-PARTIAL", "warning", "bindings take only some of the dead letters"),
    Code("DLX-ONLY-VIA-AE", "warning", "dead letters arrive only through an alternate exchange"),
    Code("DLX-UNDECIDED", "info", "where dead letters go depends on the message"),
    Code("DLX-KEY-VARIES", "info", "a message sent to the queue by name dies with a key that is not bound"),
    Code("DLX-UNBOUND", "warning", "a dead-letter exchange has no binding"),
    Code("DLX-UNUSED", "warning", "nothing dead-letters to what is named a dead-letter exchange"),
    Code("DLX-AUTO-DELETE", "warning", "the dead-letter exchange goes with its last binding"),
    Code("DLX-TRANSIENT", "warning", "the dead-letter exchange or its binding does not survive a restart"),
    Code("DLX-FANS-OUT", "info", "each dead letter lands in several queues"),
    Code("DLX-KEY-ALONE", "warning", "a dead-letter key without a dead-letter exchange"),
    Code("DLX-TARGET-FULL", "warning", "a full queue refuses dead letters"),
    Code("FANOUT-KEYS-IGNORED", "warning", "a fanout exchange ignores the different keys it is bound with"),
    Code("RETRY-DUPLICATES", "warning", "a retried message comes back to several queues"),
    # Messages that leave a queue and are gone.
    Code("NO-DLX", "info", "rejected messages are dropped"),
    Code("DROP-TTL", "warning", "expired messages are dropped"),
    Code("DROP-MAXLEN", "warning", "messages beyond the length limit are dropped"),
    Code("DROP-DELIVERY-LIMIT", "warning", "messages that were delivered too often are dropped"),
    Code("QUEUE-EXPIRES", "warning", "an unused queue is deleted with its messages"),
    Code("QUEUE-AUTO-DELETE", "warning", "a durable queue is deleted when its last consumer leaves"),
    Code("OVERFLOW-FALLBACK", "warning", "the queue type does not know this overflow and drops the oldest"),
    # Dead-letter queues.
    Code("DLQ-TTL-DROP", "warning", "a dead-letter queue forgets by age"),
    Code("DLQ-MAXLEN-DROP", "warning", "a dead-letter queue forgets beyond a length"),
    Code("DLQ-DELIVERY-LIMIT", "info", "a dead-letter queue drops letters that are returned too often"),
    Code("DLQ-TRANSIENT", "error", "a dead-letter queue does not survive a restart"),
    Code("DLQ-UNFED", "warning", "no dead letter reaches the dead-letter queue"),
    # Loops.
    Code("CYCLE-AUTO-DROP", "error", "a dead-letter cycle in which the broker drops the message"),
    Code("CYCLE-REJECT", "warning", "a dead-letter cycle that rejected messages never leave"),
    # At-least-once dead-lettering.
    Code("ALO-OVERFLOW", "warning", "at-least-once without reject-publish falls back to at-most-once"),
    Code("ALO-NO-DLX", "warning", "at-least-once without a dead-letter exchange does nothing"),
    Code("AT-MOST-ONCE", "info", "dead letters are forwarded without a confirm"),
    # Delays.
    Code("DELAY-NO-TTL", "warning", "a delay queue without a TTL of its own"),
    # Policies.
    Code("POLICY-DLX-MISSING", "error", "a policy names a dead-letter exchange that does not exist"),
    Code("POLICY-UNKNOWN-KEY", "error", "a policy key that RabbitMQ refuses"),
    Code("POLICY-VALUE", "error", "a policy value that RabbitMQ refuses"),
    Code("POLICY-PATTERN", "warning", "a policy pattern that could not be tried"),
    Code("POLICY-NOT-APPLICABLE", "warning", "a whole policy is passed over for a key of another queue type"),
    Code("POLICY-KEYS-LOST", "error", "a policy of higher priority takes the dead-letter exchange away"),
    Code("POLICY-NO-MATCH", "warning", "a policy matches nothing"),
    Code("POLICY-NEVER-WINS", "warning", "a policy matches and is never in force"),
    Code("POLICY-OVERLAP-TIE", "warning", "policies of one priority compete"),
    Code("ARG-POLICY-CONFLICT", "warning", "argument and policy disagree"),
    Code("ARG-POLICY-MIX", "warning", "exchange and key of the dead letters come from two places"),
    Code("ARG-POLICY-MIN", "info", "the smaller of argument and policy holds"),
    Code("HA-POLICY", "warning", "classic mirroring, which RabbitMQ 4 does not have"),
    # Arguments.
    Code("ARG-UNKNOWN", "warning", "an argument that does nothing"),
    Code("ARG-UNSUPPORTED", "error", "an argument of another queue type"),
    Code("ARG-TYPE", "error", "an argument of the wrong type"),
    Code("ARG-VALUE", "error", "an argument with a value that RabbitMQ refuses"),
    Code("ARG-INCOMPLETE", "error", "an argument that needs another one"),
    Code("EXCHANGE-ARGUMENT", "warning", "an exchange argument that is refused or does nothing"),
    Code("QUEUE-MODE", "info", "lazy and default mode have no effect from 3.12", "3.12+"),
    # What does not last.
    Code("TRANSIENT-QUEUE", "warning", "a transient queue that is not exclusive"),
    Code("QUORUM-TRANSIENT", "error", "a quorum queue or stream that cannot be transient"),
    Code("SINGLE-COPY", "info", "classic queues have one copy on one node"),
    # Bindings and exchanges.
    Code("BINDING-DANGLING", "error", "a binding to something that does not exist"),
    Code("BINDING-DEFAULT-X", "warning", "a binding of the default exchange"),
    Code("DIRECT-WILDCARD", "warning", "a wildcard in the key of a direct exchange's binding"),
    Code("TOPIC-WILDCARD-LITERAL", "warning", "a wildcard that is part of a word is none"),
    Code("HEADERS-MATCH-ALL", "info", "a headers binding without arguments takes every message"),
    Code("EXCHANGE-UNBOUND", "warning", "an exchange without a binding drops what is published"),
    Code("QUEUE-UNBOUND", "info", "only the default exchange reaches this queue"),
    Code("AE-MISSING", "warning", "the alternate exchange does not exist"),
    # Import.
    Code("JSON-INVALID", "error", "RabbitMQ cannot read the file"),
    Code("JSON-DUPLICATE-KEY", "warning", "a key stands twice in one JSON object"),
    Code("FIELD-TYPE", "error", "a field of a type that RabbitMQ refuses"),
    Code("FIELD-MISSING", "error", "a field without which RabbitMQ refuses the file"),
    Code("FIELD-UNKNOWN", "warning", "a field that RabbitMQ ignores and that looks like another one"),
    Code("NO-VHOST-FIELD", "error", "objects do not say their virtual host", "3.11+"),
    Code("BOOT-NO-VHOST", "warning", "the virtual host is not part of the definitions"),
    Code("DUPLICATE-NAME", "warning", "two definitions of one name"),
    Code("NAME-TOO-LONG", "error", "a name of more than 255 bytes"),
    Code("NAME-RESERVED", "warning", "a name that begins with amq. is not imported"),
    Code("XTYPE-PLUGIN", "info", "an exchange type that needs a plugin"),
    Code("PARAM-PLUGIN", "info", "a parameter that needs a plugin"),
    # Users.
    Code("USER-GUEST-ADMIN", "warning", "the user guest is an administrator"),
    Code("USER-PLAINTEXT", "warning", "a password in the clear"),
)
CATALOGUE = {code.code: code for code in _ALL}


def found(
    code: str,
    vhost: str,
    entity: str,
    message: str,
    fix: str,
    path: tuple[str, ...] = (),
    *,
    severity: Severity | None = None,
    versions: str | None = None,
) -> Finding:
    """A finding with the severity and versions of its code.

    Raises:
        KeyError: not in the catalogue.
    """
    known = CATALOGUE[code]
    return Finding(
        code, severity or known.severity, vhost, entity, path, message, fix, versions or known.versions
    )
