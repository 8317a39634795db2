"""Whether the database takes jobs: one look for all who ask at the same time, since nobody needs a key to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from storage.errors import DRIVER_ERRORS, DatabaseAwayError, MigrationError
from storage.pool import AnyConnection
from storage.schema import require_schema

FRESH_S = 0.5


class DatabaseLook:
    """`ok`, `away`, or what is wrong, as it was `FRESH_S` seconds ago at most."""

    def __init__(self, database: Callable[[], AbstractAsyncContextManager[AnyConnection]]) -> None:
        self._database = database
        self._looking: asyncio.Task[str] | None = None
        self._looked_at = 0.0

    async def state(self) -> str:
        clock = asyncio.get_running_loop().time
        if self._looking is None or (self._looking.done() and clock() - self._looked_at > FRESH_S):
            self._looking = asyncio.create_task(self._look(), name="look at the database")
        # Whoever goes away takes no answer from the others.
        return await asyncio.shield(self._looking)

    async def _look(self) -> str:
        try:
            async with self._database() as db:
                await require_schema(db)
        except DatabaseAwayError:
            return "away"
        except MigrationError as error:
            return str(error)
        except DRIVER_ERRORS as error:  # such as a password that was changed
            return f"refused: {type(error).__name__}"
        finally:
            self._looked_at = asyncio.get_running_loop().time()
        return "ok"
