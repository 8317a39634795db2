"""The acks of one batch in one write: alone, each is a system call and a wait for the interpreter's lock."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from struct import Struct
from typing import Any

logger = logging.getLogger(__name__)
# basic.ack of one message: frame type, channel, size, class, method, delivery tag, multiple, frame end.
# Never `multiple`: an earlier message of the channel may not be on record yet.
_ACK = Struct(">BHIHHQBB")
_METHOD_FRAME, _SIZE, _BASIC, _BASIC_ACK, _FRAME_END = 1, 13, 60, 80, 0xCE


def ack_all(messages: Sequence[Any], broker_errors: tuple[type[BaseException], ...]) -> None:
    """Ack messages of one channel. If the connection is lost, that is logged: the broker delivers again."""
    channel = messages[0].channel
    frames = [
        _ACK.pack(_METHOD_FRAME, channel.channel_id, _SIZE, _BASIC, _BASIC_ACK, tag, 0, _FRAME_END)
        for tag in (message.delivery_tag for message in messages)
    ]
    try:
        channel.connection.transport.write(b"".join(frames))
    except broker_errors as error:
        fields = {"action": "ack_failed", "messages": len(messages)}
        logger.warning("not acked, the broker delivers them again: %r", error, extra=fields)
    else:
        for message in messages:
            message.settled()
