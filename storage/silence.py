"""What Postgres is told at each connect about processes that freeze or vanish while they hold something.

A host that lost its power or its network says no goodbye: Postgres keeps its session, and every lock of it,
until the kernel there has been silent for a minute (by most systems' own values two hours:
https://www.postgresql.org/docs/current/runtime-config-connection.html#RUNTIME-CONFIG-TCP-SETTINGS). Through a
Unix socket the first four do nothing. The kernel of a process that is merely frozen answers for it: there
it tells that the process itself says nothing.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

# The last is for statements under way: one that waits for a lock would go on, with all that its transaction
# holds, after its process has gone or given it up.
_VANISHED = {
    "tcp_keepalives_idle": "30s",
    "tcp_keepalives_interval": "10s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
    "client_connection_check_interval": "5s",
}
# Between two statements of a transaction nothing of ours waits for anything but its turn on the processor;
# the exceptions say so (`outbox.take`, `exports.export`, `sync.Database`).
IDLE_S = 15.0
_MOST_MS = 2**31 - 1
# Of a connection that is heard of every few seconds, by its owner's design.
SILENT_S = 30.0


def limits(dsn: str, *, idle_s: float = IDLE_S, silent_s: float | None = None) -> dict[str, str]:
    """Settings for the start of a session; what the URL sets itself stays as it says.

    Args:
        idle_s: so long a transaction may wait for its next statement. Then it is rolled back and the session
            ended: an outage to whoever had it.
        silent_s: so long the session may wait for one outside of a transaction.
    """
    wanted = _VANISHED | {"idle_in_transaction_session_timeout": milliseconds(idle_s)}
    if silent_s is not None:
        wanted["idle_session_timeout"] = milliseconds(silent_s)
    own = {name for name, _ in parse_qsl(urlsplit(dsn).query)}
    return {name: value for name, value in wanted.items() if name not in own}


def milliseconds(seconds: float) -> str:
    """As Postgres takes a time: 24 days at most."""
    return f"{min(seconds * 1000, _MOST_MS):.0f}ms"
