"""API keys as this process knows them: made, hashed, looked up, and remembered for a moment."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from api.rate_limit import RateLimit, Taken
from storage import api_keys
from storage.api_keys import Principal
from storage.pool import AnyConnection

log = logging.getLogger("redrive.api")
PREFIX = "rdk_"
KEY_BYTES = 32
ID_CHARACTERS = 8
# A longer one is no key, and is not hashed.
MAX_KEY = 200
_WITH_ID = re.compile(rf"{PREFIX}([0-9a-z]{{{ID_CHARACTERS}}})_[A-Za-z0-9_-]{{43}}")
# A revoked key is refused everywhere after so long, and one that is used costs a look-up each so often.
FRESH_S = 2.0
# Keys that are remembered; whoever has more of them in use at once pays for look-ups.
MOST_KNOWN = 10_000
Database = Callable[[], AbstractAsyncContextManager[AnyConnection]]


def new_key() -> str:
    """A key of 256 random bits, behind a part that may be seen: it names the key in lists and records."""
    visible = secrets.token_hex(ID_CHARACTERS // 2)
    return f"{PREFIX}{visible}_{secrets.token_urlsafe(KEY_BYTES)}"


def hash_key(key: str) -> bytes:
    """What is stored of a key.

    Plain SHA-256: salt and a slow hash protect what people choose; 256 random bits can neither be guessed
    nor tabulated, and a slow hash would be a way to keep this process busy.
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def id_of(key: str) -> str:
    """The part that may be seen; of a key of an older release, which has none, the start of its hash."""
    match = _WITH_ID.fullmatch(key)
    return match[1] if match else hash_key(key).hex()[:ID_CHARACTERS]


class TooManyUnknownError(Exception):
    """From this address came too many keys that nobody has."""

    def __init__(self, taken: Taken) -> None:
        super().__init__("too many unknown keys from this address")
        self.taken = taken


@dataclass
class _Known:
    principal: Principal
    until: float
    ends: float


class KeyRing:
    """Looks keys up, each at most once in `FRESH_S` seconds; unknown ones only so often for each address."""

    def __init__(self, database: Database, unknown_per_min: int) -> None:
        self._database = database
        self._per_min = unknown_per_min
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Principal | None]] = {}
        self._unknown = RateLimit()

    async def principal(self, key: str, address: str | None) -> Principal | None:
        """Who holds it; None when nobody does.

        A key that was good when last looked up is let through whatever else its address sends: who guesses
        keys locks nobody out who is at work.

        Raises:
            TooManyUnknownError: it is not looked up.
            DatabaseAwayError: try again.
        """
        if len(key) > MAX_KEY:
            return None
        digest = hash_key(key)
        now = asyncio.get_running_loop().time()
        known = self._known.get(digest)
        if known is not None and now < min(known.until, known.ends):
            return known.principal
        if known is not None:
            return await self._look_up(key, digest)
        place = _place(address)
        # Taken before, so that many at once are not all looked up.
        taken = self._unknown.take(place, self._per_min / 60, self._per_min, now)
        if not taken.allowed:
            raise TooManyUnknownError(taken)
        found = None
        try:
            found = await self._look_up(key, digest)
        except BaseException:
            self._unknown.give_back(place)
            raise
        if found is not None:
            self._unknown.give_back(place)
        elif taken.left < 1:
            log.warning("too many unknown keys from %s", place, extra={"action": "unknown_keys"})
        return found

    async def _look_up(self, key: str, digest: bytes) -> Principal | None:
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._ask(key, digest), name="key-look-up")
            task.add_done_callback(lambda done: self._asked(digest, done))
        # Requests with the same key share it, so that one that is given up takes it from nobody.
        return await asyncio.shield(task)

    def _asked(self, digest: bytes, done: asyncio.Task[Principal | None]) -> None:
        del self._asking[digest]
        if not done.cancelled():
            done.exception()  # whoever still waits raises it

    async def _ask(self, key: str, digest: bytes) -> Principal | None:
        clock = asyncio.get_running_loop().time
        asked = clock()
        async with self._database() as db:
            found = await api_keys.find(db, id_of(key), digest)
        self._known.pop(digest, None)
        if found is not None:
            ends = float("inf") if found.good_for_s is None else asked + found.good_for_s
            self._known[digest] = _Known(found, asked + FRESH_S, ends)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return found


def _place(address: str | None) -> str:
    """Whom an address belongs to: of IPv6 a whole /64 is one subscriber's."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return address or ""
    if found.version == 6 and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found.ipv4_mapped or found) if found.version == 6 else str(found)
