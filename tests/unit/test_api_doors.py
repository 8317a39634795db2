"""No route is open but those that are meant to be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute

from api.application import create_app
from api.keys import hash_key, id_of, new_key
from api.problems import Problem
from api.runtime import Config, Runtime
from api.settings import ApiSettings
from storage.errors import DatabaseAwayError, MigrationError
from storage.settings import StorageSettings
from topology.address import AmqpAddress
from topology.catalogue import TOPOLOGY
from topology.settings import ReplaySettings

OPEN = {"/healthz", "/readyz"}
DOCS = {"/docs", "/openapi.json"}


def application(**settings: Any) -> FastAPI:
    """The app over servers that do not exist: who is refused never gets as far."""
    config = Config(
        ApiSettings.model_validate(settings),
        StorageSettings.model_validate({"database_url": "postgresql://u:p@127.0.0.1:1/none"}),
        TOPOLOGY,
        AmqpAddress.parse("amqp://127.0.0.1:1/"),
        "http://127.0.0.1:1",
        ReplaySettings(),
    )
    app = create_app(config)
    app.state.runtime = Runtime(config)
    return app


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    for route in _flat(app.routes):
        for method in sorted(getattr(route, "methods", None) or ()):
            yield method, str(getattr(route, "path", ""))


def _flat(found: list[BaseRoute]) -> Iterator[BaseRoute]:
    for route in found:
        # FastAPI keeps an included router as one route; walked as they are, its routes would go unchecked.
        router = getattr(route, "original_router", route)
        if inner := getattr(router, "routes", None):
            yield from _flat(inner)
        else:
            yield route


@pytest.mark.anyio
async def test_every_route_but_health_and_docs_is_refused_without_a_key() -> None:
    app = application(docs=True)
    found = list(routes(app))
    assert {path for _, path in found} >= {*app.openapi()["paths"], "/jobs", "/metrics"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for method, path in found:
            answer = await client.request(method, path.replace("{", "").replace("}", ""))
            if path in OPEN | DOCS:
                assert answer.status_code != 401, (method, path)
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                if method != "HEAD":
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert answer.json()["status"] == 401


@pytest.mark.anyio
@pytest.mark.parametrize("value", ["rdk_x", "Basic cmRrX3g6", "Bearer", "Bearer "])
async def test_what_is_no_bearer_key_is_refused(value: str) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application()), base_url="http://test"
    ) as client:
        answer = await client.get("/job-types", headers={"Authorization": value})
    assert answer.status_code == 401


@pytest.mark.anyio
async def test_a_path_that_is_spelled_otherwise_is_not_there() -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application()), base_url="http://test"
    ) as client:
        for method, path in (("GET", "/dead-letters/"), ("POST", "/jobs/"), ("GET", "/healthz/")):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["type"]) == (404, "urn:redrive:problem:not-found"), path


@pytest.mark.anyio
async def test_whoever_may_come_again_is_told_when() -> None:
    app = application()
    errors = {"/older": MigrationError("Run: storage migrate"), "/away": DatabaseAwayError("no answer")}

    def failing(error: Exception) -> Callable[[], None]:
        def route() -> None:
            raise error

        return route

    for path, error in errors.items():
        app.add_api_route(path, failing(error))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        found = {path: await client.get(path) for path in (*errors, "/readyz")}
    assert {path: (each.status_code, each.headers["retry-after"]) for path, each in found.items()} == {
        "/older": (503, "30"),
        "/away": (503, "2"),
        "/readyz": (503, "2"),
    }
    for status in (429, 503):
        assert Problem(status, "busy", "later").response().headers["retry-after"] == "2"
        own = Problem(status, "busy", "later", headers={"Retry-After": "7"})
        assert own.response().headers.getlist("retry-after") == ["7"]


def test_docs_and_metrics_follow_their_switches() -> None:
    closed = {path for _, path in routes(application())}
    assert not closed & DOCS
    assert {path for _, path in routes(application(docs=True))} >= DOCS


@pytest.mark.anyio
async def test_the_document_is_made_once_for_all_who_ask_and_found_from_its_page() -> None:
    app = application(docs=True)
    make, made = app.openapi, []

    def counted() -> dict[str, Any]:
        made.append(1)
        return make()

    app.openapi = counted  # type: ignore[method-assign]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(5)))
        page = await client.get("/docs")
    assert len(made) == 1
    assert {answer.content for answer in answers} == {json.dumps(make(), separators=(",", ":")).encode()}
    assert "url: 'openapi.json'" in page.text  # below whatever path a proxy adds


@pytest.mark.anyio
async def test_metrics_are_open_only_by_their_switch() -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application(metrics_public=True)), base_url="http://test"
    ) as client:
        page = await client.get("/metrics")  # no server is there
        assert page.status_code == 200
        assert 'redrive_up{what="database"} 0' in page.text
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application(metrics_public=False)), base_url="http://test"
    ) as client:
        assert (await client.get("/metrics")).status_code in (401, 503)


def test_keys_are_long_random_and_stored_only_as_a_digest() -> None:
    first, second = new_key(), new_key()
    assert first != second
    assert first.startswith("rdk_")
    assert (
        len(first.rpartition(id_of(first) + "_")[2]) == 43
    )  # 256 bits in base64url, but for what may be seen
    assert len(hash_key(first)) == 32
    assert hash_key(first) != hash_key(second)


def resolved(document: Any, found: Any) -> Any:
    name = found.get("$ref", "").rpartition("/")[2]
    return document["components"]["responses"][name] if name else found


def test_the_document_says_of_each_route_with_a_key_that_it_may_be_asked_too_often() -> None:
    document = application(docs=True).openapi()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            answers = operation["responses"]
            assert {"414", "431"} <= answers.keys(), (method, path)
            assert ("429" in answers) is ("security" in operation) is (path not in OPEN), (method, path)
            if "429" in answers:
                headers = {"Retry-After", "RateLimit", "RateLimit-Policy"}
                assert resolved(document, answers["429"])["headers"].keys() == headers, (method, path)
