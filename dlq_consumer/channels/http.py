"""One POST of an alert, within a time."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_consumer.channels.channel import DeliveryError
from outbound.destination import Destination
from outbound.poster import NoAnswerError, Poster
from outbound.reach import Reach, RefusedError


class AlertPoster:
    """Posts to one URL. It may hold a secret of the receiver's: no error quotes it."""

    def __init__(self, url: str, timeout_s: float, reach: Reach) -> None:
        """Raises:
        ValueError: the URL is none, or is known to lead where it may not.
        """
        self._to = Destination.parse(url)
        try:
            reach.check(self._to)
        except RefusedError as error:
            raise ValueError(f"{error}; what is not public must be allowed by REDRIVE_ALERT_ALLOW") from None
        self._poster = Poster(reach, timeout_s)
        self.longest_s = self._poster.longest_s

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Raises DeliveryError, also where the answer is no 2xx."""
        try:
            answer = await self._poster.post(self._to, body, headers)
        except RefusedError as error:
            raise DeliveryError(f"{error}; REDRIVE_ALERT_ALLOW does not name it") from None
        except NoAnswerError as error:
            raise DeliveryError(str(error)) from None
        if not answer.is_taken:
            raise DeliveryError(f"the receiver answered {answer.status}")

    async def close(self) -> None:
        await self._poster.close()
