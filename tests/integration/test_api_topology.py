"""`GET /topology` of a real API process."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.support.api_alone import api_alone
from tests.support.mermaid import read
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from topology.catalogue import TOPOLOGY
from topology.entities import compile_topology
from topology.render.description import description


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    with api_alone(places, REDRIVE_API_DOCS="true") as shared:
        yield shared


def test_the_topology_is_shown_as_the_client_likes_it(running: Stack) -> None:
    api = running.http
    shown = api.get("/topology")
    assert (shown.status_code, shown.headers["content-type"], shown.headers["vary"]) == (
        200, "application/json", "Accept",
    )  # fmt: skip
    # With this process's delays, which are a tenth here, as on its broker.
    assert shown.json() == description(TOPOLOGY, compile_topology(TOPOLOGY, 0.1))
    declared = {
        each["name"] for each in running.vhost.management.get(f"/api/queues/{running.vhost.vhost}").json()
    }
    assert declared == {each["name"] for each in shown.json()["entities"]["queues"]}

    picture = api.get("/topology", headers={"Accept": "image/svg+xml,*/*;q=0.1"})
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert "default-src 'none'" in picture.headers["content-security-policy"]
    assert ElementTree.fromstring(picture.text).tag == "{http://www.w3.org/2000/svg}svg"
    assert api.get("/topology?format=svg", headers={"Accept": "application/json"}).text == picture.text

    chart = api.get("/topology?format=mermaid&queue=emails")
    assert chart.headers["content-type"] == "text/vnd.mermaid; charset=utf-8"
    assert "emails.dlq" in read(chart.text).nodes.values()
    assert [each["name"] for each in api.get("/topology?queue=emails").json()["queues"]] == ["emails"]


def test_what_cannot_be_shown_is_refused(running: Stack) -> None:
    for query, headers, status, kind in [
        ("", {"Accept": "text/html"}, 406, "not-acceptable"),
        ("?queue=emial", {}, 404, "unknown-queue"),
        ("?queue=emial&format=svg", {}, 404, "unknown-queue"),
        ("?format=pdf", {}, 422, "invalid"),
        ("?queue=", {}, 422, "invalid"),
        ("?queue=%00", {}, 422, "invalid"),
    ]:
        answer = running.http.get(f"/topology{query}", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (status, f"urn:redrive:problem:{kind}"), query
    documented = running.http.get("/openapi.json").json()["paths"]["/topology"]["get"]["responses"]
    assert documented.keys() >= {"200", "404", "406", "422", "401", "403"}
    assert documented["200"]["content"].keys() == {"application/json", "image/svg+xml", "text/vnd.mermaid"}
