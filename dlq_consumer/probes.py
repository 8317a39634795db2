"""Probes of `topology verify` that have arrived: answered to their sender, and no letters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import uuid4

from topology.broker_errors import BrokerError, Unroutable
from topology.channel import Delivery
from topology.probe import Probe, answer_message, arrival, probe_of
from topology.publisher import Publisher

log = logging.getLogger(__name__)


def sort_out(batch: Sequence[Delivery]) -> tuple[list[tuple[Probe, Delivery]], list[Delivery]]:
    """The probes of a batch, and its letters."""
    probes, letters = [], []
    for delivery in batch:
        if (probe := probe_of(delivery.properties, delivery.body)) is not None:
            probes.append((probe, delivery))
        else:
            letters.append(delivery)
    return probes, letters


class ProbeAnswers:
    """Tells senders where their probes arrived."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def answer(self, queue: str, probes: Sequence[tuple[Probe, Delivery]]) -> None:
        """Answer each, confirmed. A sender who is gone, or out of reach, asks again: no error."""
        await asyncio.gather(*(self._answer(queue, probe, delivery) for probe, delivery in probes))

    async def _answer(self, queue: str, probe: Probe, delivery: Delivery) -> None:
        fields = {"action": "probe_arrived", "queue": queue, "probe": str(probe.id)}
        token = str(uuid4())
        message = answer_message(arrival(probe, queue, delivery.properties), token)
        try:
            await self._publisher.publish("", probe.reply_to, message, token)
        except Unroutable:
            log.info("a probe arrived; its sender is gone", extra=fields)
        except BrokerError as error:
            log.warning("a probe arrived and was not answered: %s", error, extra=fields)
        else:
            log.info("a probe arrived", extra=fields)
