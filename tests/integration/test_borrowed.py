"""A run's own vhost and database in servers that somebody else named."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest

from dev.borrowed import RightMissing, borrowed, name_for
from dev.management import management_client
from dev.servers import ServerUrls
from tests.support.databases import Database
from tests.support.servers import Servers

NAME = name_for("test")


@pytest.fixture
def management(servers: Servers) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=servers.urls.management, timeout=30, trust_env=False) as client:
        yield client


def vhosts(management: httpx.Client) -> set[str]:
    return {each["name"] for each in management.get("/api/vhosts").raise_for_status().json()}


def databases(database: Database) -> set[str]:
    return {row["datname"] for row in database.fetch("select datname from pg_database")}


def with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()


def test_they_are_there_and_empty_and_gone_afterwards(
    servers: Servers, management: httpx.Client, empty_database: Database
) -> None:
    with borrowed(servers.urls, "test", print) as urls:
        assert urlsplit(urls.amqp).path == f"/{NAME}"
        assert urlsplit(urls.database).path == f"/{NAME}"
        assert NAME in vhosts(management)
        assert NAME in databases(empty_database)
    assert NAME not in vhosts(management)
    assert NAME not in databases(empty_database)


def test_they_are_gone_after_a_failure_too(
    servers: Servers, management: httpx.Client, empty_database: Database
) -> None:
    with pytest.raises(RuntimeError, match="the story failed"), borrowed(servers.urls, "test", print):
        raise RuntimeError("the story failed")
    assert NAME not in vhosts(management)
    assert NAME not in databases(empty_database)


def test_an_error_of_the_management_api_tells_the_address_and_not_the_log_in(servers: Servers) -> None:
    parts = urlsplit(servers.urls.management)
    with management_client(servers.urls.management, timeout_s=30) as client:
        answer = client.get("/api/vhosts/none")
    with pytest.raises(httpx.HTTPStatusError) as refused:
        answer.raise_for_status()
    assert refused.value.response.status_code == 404  # logged in
    assert f"{parts.hostname}:{parts.port}" in str(refused.value)
    assert f"{parts.username}:" not in str(refused.value)
    assert "@" not in str(refused.value)


def test_what_a_crashed_run_left_is_cleared_away(
    servers: Servers, management: httpx.Client, empty_database: Database
) -> None:
    management.put(f"/api/vhosts/{NAME}").raise_for_status()
    management.put(f"/api/queues/{NAME}/left", json={"durable": True}).raise_for_status()
    empty_database.execute(f'create database "{NAME}"')
    with borrowed(servers.urls, "test", print):
        assert management.get(f"/api/queues/{NAME}").json() == []
    assert NAME not in vhosts(management)


def test_a_user_who_may_not_make_vhosts_is_named_with_the_right_it_lacks(
    servers: Servers, management: httpx.Client
) -> None:
    user = f"plain-{secrets.token_hex(4)}"
    management.put(f"/api/users/{user}", json={"password": "pw", "tags": "management"}).raise_for_status()
    try:
        urls = replace(servers.urls, management=with_login(servers.urls.management, user, "pw"))
        refused(urls, f"REDRIVE_MANAGEMENT_URL: {user} may not create the vhost.*set_user_tags")
    finally:
        management.delete(f"/api/users/{user}")


def test_a_role_that_may_not_make_databases_is_named_with_the_right_it_lacks(
    servers: Servers, management: httpx.Client, empty_database: Database
) -> None:
    role = f"plain_{secrets.token_hex(4)}"
    empty_database.execute(f"create role {role} login password 'pw'")
    try:
        urls = replace(servers.urls, database=with_login(servers.urls.database, role, "pw"))
        refused(urls, f"REDRIVE_DATABASE_URL: the role {role} may not create.*ALTER ROLE {role} CREATEDB")
    finally:
        empty_database.execute(f"drop role {role}")
    assert NAME not in vhosts(management)


def refused(urls: ServerUrls, why: str) -> None:
    with pytest.raises(RightMissing, match=why), borrowed(urls, "test", print):
        pytest.fail("it was allowed")
