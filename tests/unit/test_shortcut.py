"""What goes past the router is answered as by the router."""

from __future__ import annotations

import uuid

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from api.job_ids import new_ids
from api.shortcut import Shortcut
from tests.unit.test_api_doors import application

pytestmark = pytest.mark.anyio


class Known(LookupError):
    """Has a handler by its base class."""


async def endpoint(request: Request) -> Response:
    body = await request.body()
    if body == b"known":
        raise Known
    if body == b"defect":
        raise ZeroDivisionError
    return PlainTextResponse(b"short " + body)


async def known(request: Request, error: LookupError) -> Response:
    return PlainTextResponse(f"{request.url.path} {type(error).__name__}", 418)


async def defect(request: Request, error: Exception) -> Response:
    return PlainTextResponse("defect", 500)


async def long_way(request: Request) -> Response:
    return PlainTextResponse("long way")


def client(*, root_path: str = "") -> httpx.AsyncClient:
    handlers = {LookupError: known, Exception: defect}
    past = Middleware(Shortcut, method="POST", path="/jobs", endpoint=endpoint, handlers=handlers)
    app = Starlette(middleware=[past], exception_handlers={Exception: defect})
    for path in ("/jobs", "/jobs/x"):
        app.add_route(path, long_way, ["GET", "POST"])
    transport = httpx.ASGITransport(app, root_path=root_path, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


async def test_one_method_and_path_goes_past_the_router_and_all_else_through_it() -> None:
    async with client() as http:
        assert (await http.post("/jobs", content=b"me")).text == "short me"
        for method, path in (("GET", "/jobs"), ("POST", "/jobs/x")):
            assert (await http.request(method, path)).text == "long way"
        assert (await http.put("/jobs")).status_code == 405
    async with client(root_path="/behind") as http:
        assert (await http.post("/behind/jobs")).text == "long way"


async def test_an_error_is_answered_by_the_handler_of_its_kind_and_a_defect_by_the_servers() -> None:
    async with client() as http:
        answer = await http.post("/jobs", content=b"known")
        assert (answer.status_code, answer.text) == (418, "/jobs Known")
        answer = await http.post("/jobs", content=b"defect")
        assert (answer.status_code, answer.text) == (500, "defect")


async def test_a_submission_is_answered_alike_on_both_ways() -> None:
    found = []
    for root_path in ("", "/behind"):
        transport = httpx.ASGITransport(application(), root_path=root_path)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            answer = await http.post(f"{root_path}/jobs")
            found.append((answer.status_code, answer.json(), dict(answer.headers)))
    assert found[0] == found[1]
    assert found[0][0] == 401


def test_ids_are_random_uuids_of_version_4() -> None:
    ids = new_ids(2_000)
    assert len(set(ids)) == 2_000
    for each in map(uuid.UUID, ids):
        assert (each.version, each.variant) == (4, uuid.RFC_4122)
    assert ids == [str(uuid.UUID(each)) for each in ids]
    assert {each[19] for each in ids} == set("89ab")
