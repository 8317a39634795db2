"""Messages on their way from one queue to another: confirmed before acknowledged."""

from __future__ import annotations

import pytest

from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.connection import connect
from topology.migrate.errors import MigrationError
from topology.migrate.siphon import Siphon
from topology.migrate.wrapping import packed

pytestmark = pytest.mark.anyio

FULL = {"x-max-length": 3, "x-overflow": "reject-publish"}


@pytest.mark.parametrize(
    ("target", "words"), [("full", "refused by the broker"), ("missing", "312 NO_ROUTE")]
)
async def test_what_the_target_does_not_take_stays_in_the_source(
    vhost: Vhost, target: str, words: str
) -> None:
    with vhost.channel() as channel:
        channel.queue_declare("source", durable=True)
        channel.queue_declare("full", durable=True, arguments=FULL)
        channel.confirm_delivery()
        for number in range(10):
            channel.basic_publish("", "source", b"%d" % number, mandatory=True)
    address = AmqpAddress.parse(vhost.amqp_url)
    consuming, publishing = await connect(address, "consuming"), await connect(address, "publishing")
    try:
        siphon = await Siphon("source", "", lambda delivery: packed(delivery, target)).open(
            consuming, publishing
        )
        with pytest.raises(MigrationError, match=words):  # noqa: PT012 - one of many steps
            for _ in range(100):
                await siphon.step()
        await siphon.close()
    finally:
        await consuming.close()
        await publishing.close()

    assert eventually(lambda: vhost.depth("source") == 10, 10, "all are back")
