"""Real definitions files of other projects: every error and warning that careful reading finds, and no other.

The files are no part of this project; where they are not at hand the tests are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.lint_fixtures import by_code
from topology.lint.read import read
from topology.lint.run import lint
from topology.lint.target import SUPPORTED, Target

FILES = Path(__file__).parents[2] / "../shared/cases/definitions"
pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason=f"no definitions files in {FILES}")


@dataclass(frozen=True)
class Case:
    """Code -> what it is said of."""

    errors: dict[str, list[str]]
    warnings: dict[str, list[str]]


def queues(names: str) -> list[str]:
    return [f"queue {name!r}" for name in names.split()]


def exchanges(names: str) -> list[str]:
    return [f"exchange {name!r}" for name in names.split()]


def policies(names: str) -> list[str]:
    return [f"policy {name!r}" for name in names.split()]


def users(names: str) -> list[str]:
    return [f"user {name!r}" for name in names.split()]


DANGLING_IN_04 = (
    "'Field.other' ('event.case.address.update')",
    "'Field.other' ('event.case.appointment')",
    "'Field.other' ('event.ccs.propertylisting')",
    "'Field.other' ('event.fieldcase.update')",
    "'Field.other' ('event.fulfilment.request')",
    "'Field.other' ('event.questionnaire.update')",
    "'Field.other' ('event.response.authentication')",
    "'Field.refusals' ('event.respondent.refusal')",
)
# A cycle is told by the first queue of its path. File 28 does not say its version, and 4.3, for which it is
# linted then, refuses its mirroring policy: an error.
CASES = {
    "02": Case(
        errors={},
        warnings={"HA-POLICY": policies("2-queue-replicas"), "TRANSIENT-QUEUE": queues("aliveness-test")},
    ),
    "04": Case(
        errors={"BINDING-DANGLING": [f"binding 'events' -> {rest}" for rest in DANGLING_IN_04]},
        warnings={
            "BOOT-NO-VHOST": ["file"],
            "CYCLE-REJECT": queues("Action.Field"),
            "DLQ-UNFED": queues("pubsub.quarantine"),
            "EXCHANGE-UNBOUND": exchanges("case-outbound-exchange"),
            "USER-GUEST-ADMIN": users("guest"),
        },
    ),
    "05": Case(
        errors={},
        warnings={"USER-PLAINTEXT": users("RABBITMQ_DEFAULT_USER")},
    ),
    "08": Case(
        errors={"POLICY-DLX-MISSING": policies("mqtt-queue-configuration")},
        warnings={
            "ARG-UNKNOWN": queues("customers"),
            "HA-POLICY": policies("common-queue-configuration ha mqtt-queue-configuration"),
            "POLICY-NO-MATCH": policies("common-queue-configuration mqtt-queue-configuration"),
            "POLICY-OVERLAP-TIE": policies("ha ha"),
            "USER-PLAINTEXT": users("rabbitmq-user"),
        },
    ),
    "10": Case(
        errors={"DLQ-TRANSIENT": queues("my-queue.dead")},
        warnings={"TRANSIENT-QUEUE": queues("my-queue.dead")},
    ),
    "14": Case(
        errors={
            "ARG-UNSUPPORTED": queues("job.high job.low job.medium"),
            "POLICY-NOT-APPLICABLE": queues("job.dead-letter job.high job.low job.medium job.status"),
            "POLICY-UNKNOWN-KEY": policies(
                "dead-letter-policy high-priority-policy job-queue-policy low-priority-policy "
                "medium-priority-policy"
            ),
        },
        warnings={
            "BINDING-DEFAULT-X": ["binding '' -> 'job.dead-letter' ('job.dead-letter')"],
            "DLQ-MAXLEN-DROP": queues("job.dead-letter"),
            "DLQ-TTL-DROP": queues("job.dead-letter"),
            "DLX-UNUSED": exchanges("dead.letter.exchange"),
            "DROP-DELIVERY-LIMIT": queues("job.status"),
            "DROP-MAXLEN": queues("job.status"),
            "DROP-TTL": queues("job.status"),
            "EXCHANGE-UNBOUND": exchanges("dead.letter.exchange"),
            "POLICY-NEVER-WINS": policies(
                "high-priority-policy job-queue-policy low-priority-policy medium-priority-policy"
            ),
            "POLICY-NO-MATCH": policies("federation-policy"),
            "POLICY-NOT-APPLICABLE": queues("job.high job.low job.medium"),
            "QUEUE-EXPIRES": queues("job.high job.low job.medium"),
        },
    ),
    "15": Case(
        errors={
            "DLX-UNROUTABLE": queues(
                "mq.guide.decoder.request mq.guide.gateway.request mq.guide.shredder.request"
            )
        },
        warnings={
            "DLQ-TTL-DROP": queues(
                "mq.guide.aggregator.dlq mq.guide.decoder.dlq mq.guide.detailer.dlq "
                "mq.guide.enricher.dlq mq.guide.funder.dlq mq.guide.producer.dlq "
                "mq.guide.shredder.dlq"
            ),
            "DLQ-UNFED": queues("mq.guide.decoder.dlq mq.guide.shredder.dlq"),
            "EXCHANGE-UNBOUND": exchanges("rpc.topic tasks.topic"),
        },
    ),
    "16": Case(
        errors={
            "DLX-UNROUTABLE": queues(
                "log_events log_events logs.collector logs.error logs.info logs.warning "
                "metrics.collector traces.collector"
            )
        },
        warnings={
            "ARG-UNKNOWN": queues(
                "logs.collector logs.error logs.info logs.warning metrics.collector traces.collector"
            ),
            "DLQ-UNFED": queues("dlq.logs dlq.metrics dlq.traces log_events_dlq log_events_dlq"),
            "DLX-UNBOUND": exchanges("dlx.logs dlx.metrics dlx.traces"),
            "DROP-TTL": queues("alerts.processor health.monitor"),
            "HA-POLICY": policies("logs-ha-policy metrics-ha-policy traces-ha-policy"),
            "USER-GUEST-ADMIN": users("guest"),
            "USER-PLAINTEXT": users("guest obs_user"),
        },
    ),
    "22": Case(
        errors={
            "DLX-UNROUTABLE": queues(
                "eaas-dlq-emails-send eaas-dlq-inbound-process eaas-dlq-webhook-dispatch"
            )
        },
        warnings={
            "ARG-POLICY-CONFLICT": queues("eaas-emails-send eaas-inbound-process eaas-webhook-dispatch")
        },
    ),
    "24": Case(
        errors={},
        warnings={
            "BOOT-NO-VHOST": ["file"],
            "CYCLE-REJECT": queues(
                "q.audit q.extractor q.notification q.projection q.thumbnail q.upload.commands q.validator"
            ),
        },
    ),
    "27": Case(
        errors={
            "DLX-UNROUTABLE": queues(
                "gasolinera.coupon.events gasolinera.dead-letter-queue "
                "gasolinera.notification.events gasolinera.raffle.events "
                "gasolinera.redemption.events gasolinera.user.events"
            ),
            "POLICY-KEYS-LOST": queues("gasolinera.audit.events gasolinera.critical.alerts"),
            "POLICY-UNKNOWN-KEY": policies("priority-queue-policy"),
        },
        warnings={
            "ARG-POLICY-CONFLICT": queues(
                "gasolinera.coupon.events gasolinera.dead-letter-queue "
                "gasolinera.notification.events gasolinera.notification.events "
                "gasolinera.raffle.events gasolinera.redemption.events gasolinera.retry.queue "
                "gasolinera.retry.queue gasolinera.user.events"
            ),
            "ARG-UNKNOWN": queues("gasolinera.audit.events gasolinera.dead-letter-queue"),
            "DIRECT-WILDCARD": ["binding 'gasolinera.dead-letter' -> 'gasolinera.dead-letter-queue' ('#')"],
            "DLX-ONLY-VIA-AE": queues("gasolinera.retry.queue"),
            "DROP-MAXLEN": queues("gasolinera.audit.events"),
            "DROP-TTL": queues("gasolinera.audit.events gasolinera.critical.alerts"),
            "EXCHANGE-UNBOUND": exchanges("gasolinera.delayed"),
            "HA-POLICY": policies("ha-all-policy lazy-queue-policy priority-queue-policy"),
        },
    ),
    "28": Case(
        errors={
            "DLX-UNROUTABLE": queues("retry.queue"),
            "HA-POLICY": policies("ha-policy"),
            "POLICY-KEYS-LOST": queues(
                "background.analytics background.blockchain background.cleanup "
                "background.media.processing background.moderation background.reports "
                "email.notifications email.notifications.priority"
            ),
        },
        warnings={
            "ARG-POLICY-CONFLICT": queues("retry.queue"),
            "ARG-POLICY-MIX": queues("retry.queue"),
            "DLQ-MAXLEN-DROP": queues("failed.dlq"),
            "DLQ-TTL-DROP": queues("failed.dlq"),
            "DROP-TTL": queues(
                "background.analytics background.blockchain background.cleanup "
                "background.media.processing background.moderation background.reports "
                "email.notifications email.notifications.priority"
            ),
            "EXCHANGE-UNBOUND": exchanges("cryb.headers"),
        },
    ),
    "30": Case(
        errors={
            "DLX-UNROUTABLE": queues(
                "bo.cloned bo.created bo.deleted bo.updated instance.created instance.deleted "
                "instance.updated workflow.events"
            ),
            "NO-VHOST-FIELD": ["file"],
        },
        warnings={"DLX-UNBOUND": exchanges("dlx"), "USER-GUEST-ADMIN": users("guest")},
    ),
    "31": Case(
        errors={},
        warnings={},
    ),
    "34": Case(
        errors={},
        warnings={
            "DELAY-NO-TTL": queues(
                "ms_app_config.user.created.retry ms_app_config.user.deleted.retry "
                "ms_app_config.user.updated.retry ms_config.user.created.retry "
                "ms_config.user.deleted.retry ms_config.user.updated.retry "
                "ms_payment.user.created.retry ms_payment.user.deleted.retry "
                "ms_payment.user.updated.retry ms_plan.plan.purchase.approved.retry "
                "ms_plan.plan.purchase.cancelled.retry ms_text.user.created.retry "
                "ms_text.user.deleted.retry ms_text.user.updated.retry "
                "ms_user.payment.approved.retry ms_user.payment.cancelled.retry"
            )
        },
    ),
    "36": Case(
        errors={},
        warnings={"FANOUT-KEYS-IGNORED": exchanges("erp.dlx")},
    ),
    "38": Case(
        errors={},
        warnings={"DROP-DELIVERY-LIMIT": queues("jadero.unrouted")},
    ),
    "39": Case(
        errors={"JSON-INVALID": ["file"]},
        warnings={"USER-PLAINTEXT": users("rabbitmq")},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_file_gives_what_careful_reading_finds(name: str) -> None:
    definitions = read((FILES / f"{name}.json").read_bytes(), name)
    found = lint(definitions, Target.nearest(definitions.rabbitmq_version))
    assert by_code(one for one in found if one.severity == "error") == CASES[name].errors
    assert by_code(one for one in found if one.severity == "warning") == CASES[name].warnings


@pytest.mark.parametrize("target", SUPPORTED, ids=str)
@pytest.mark.parametrize("name", ["05", "31", "38"])
def test_the_careful_ones_raise_no_alarm_on_any_version(name: str, target: Target) -> None:
    alarms = {
        (one.severity, one.code, one.entity)
        for one in lint(read((FILES / f"{name}.json").read_bytes(), name), target)
        if one.severity != "info"
    }
    known = {("warning", code, entity) for code, listed in CASES[name].warnings.items() for entity in listed}
    assert alarms - known == set()


@pytest.mark.parametrize("target", SUPPORTED, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_each_file_can_be_linted_for_each_version_with_evidence_and_a_fix(name: str, target: Target) -> None:
    found = lint(read((FILES / f"{name}.json").read_bytes(), name), target)
    assert [one for one in found if not (one.message and one.fix and one.path and one.versions)] == []
    assert "REDACTED" not in repr(found)


def test_every_file_has_its_case() -> None:
    assert sorted(file.stem for file in FILES.glob("*.json")) == sorted(CASES)
