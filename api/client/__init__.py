"""A client of the API, for any Python program: `Client`, and `AsyncClient` for asyncio.

It imports httpx and nothing of the server.
"""

from api.client.async_client import AsyncClient
from api.client.errors import (
    BatchUnfinished,
    FieldFault,
    Forbidden,
    IdempotencyConflict,
    Invalid,
    JobCancelled,
    JobDead,
    JobHasNoResult,
    NotAllowed,
    NotFinished,
    NotFound,
    NotJson,
    OutcomeUnknown,
    Problem,
    RateLimited,
    RedriveError,
    ServerFault,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WaitTimeout,
)
from api.client.sync_client import Client
from api.client.values import Accepted, BatchResult, Job, NewJob, Refused, Replay, Unknown

__all__ = [
    "Accepted",
    "AsyncClient",
    "BatchResult",
    "BatchUnfinished",
    "Client",
    "FieldFault",
    "Forbidden",
    "IdempotencyConflict",
    "Invalid",
    "Job",
    "JobCancelled",
    "JobDead",
    "JobHasNoResult",
    "NewJob",
    "NotAllowed",
    "NotFinished",
    "NotFound",
    "NotJson",
    "OutcomeUnknown",
    "Problem",
    "RateLimited",
    "RedriveError",
    "Refused",
    "Replay",
    "ServerFault",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unknown",
    "Unreachable",
    "WaitTimeout",
]
