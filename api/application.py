"""The application, put together from its configuration."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI

from api import doorway, problems
from api.job_watch import JobWatch
from api.routes import (
    alerts,
    audit,
    batches,
    callbacks,
    dead_letters,
    docs,
    groups,
    health,
    job_actions,
    job_events,
    job_lists,
    jobs,
    letter_actions,
    letter_decisions,
    letter_export,
    queues,
    replays,
    stream,
    topology,
)
from api.runtime import Config, Runtime
from api.shortcut import Shortcut
from api.stopping import stop_event

# New ones between two looks for garbage: a batch of jobs is none.
GC_OBJECTS = 20_000


def create_app(config: Config) -> FastAPI:
    """The ASGI application. It connects to nothing before its lifespan starts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        runtime = app.state.runtime = Runtime(config)
        app.state.stopping = stop_event()
        app.state.streams = set()
        app.state.exports = set()
        watch = app.state.job_watch = JobWatch(runtime.database, app.state.stopping)
        runtime.start()
        # What is there now stays: looking through all of it again held requests up for 40 ms at a time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_OBJECTS)
        try:
            yield
        finally:
            await watch.close()
            await runtime.close()

    app = FastAPI(
        title="Redrive",
        version=version("redrive"),
        summary="Submit jobs; look at dead letters and replay them.",
        lifespan=lifespan,
        redirect_slashes=False,  # the document knows each path in one spelling
        openapi_url=None,  # nor /docs: see `api.routes.docs`
    )
    problems.install(app)
    app.add_middleware(
        Shortcut,
        method="POST",
        path=jobs.PATH,
        endpoint=jobs.submit_at_once,
        handlers=app.exception_handlers,
    )
    for routes in (
        *(jobs, batches, health, job_lists, job_events, job_actions, queues, topology),
        *(
            letter_export,
            dead_letters,
            letter_actions,
            letter_decisions,
            groups,
            alerts,
            replays,
            callbacks,
            stream,
            audit,
        ),
    ):
        app.include_router(routes.router)
    app.include_router(health.metrics_router(public=config.api.metrics_public))
    doorway.install(app)
    if config.api.docs:
        # Its models take a tenth of the start: where nobody may see it, none is made.
        from api.openapi.document import describe

        describe(app, config.topology)
        app.include_router(docs.docs_router(app))
    return app
