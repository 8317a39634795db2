"""`make up`: what it leaves running can be used, and it ends when a process does."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import httpx
import pytest
from dotenv import dotenv_values

from dev.errors import DevError
from dev.servers import ServerUrls
from dev.stack import ProcessDied, Stack
from dev.up import keep_up
from tests.support.databases import Database
from tests.support.servers import Servers
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually


@pytest.fixture
def urls(vhost: Vhost, empty_database: Database) -> ServerUrls:
    return ServerUrls(vhost.amqp_url, vhost.management_url, empty_database.url)


def test_it_can_be_used_and_ends_when_a_process_dies(
    servers: Servers, urls: ServerUrls, empty_database: Database
) -> None:
    env = servers.run.directory / "env"
    ended: list[DevError] = []

    def up() -> None:
        try:
            keep_up(servers.run, urls, servers.kind, print)
        except DevError as error:
            ended.append(error)

    thread = threading.Thread(target=up)
    thread.start()
    try:
        eventually(lambda: env.exists() or not thread.is_alive(), 60, "everything is up")
        assert not ended
        assert env.stat().st_mode & 0o077 == 0
        given = dotenv_values(env)
        key = {"Authorization": f"Bearer {given['REDRIVE_KEY']}"}
        answer = httpx.get(f"{given['REDRIVE_URL']}/job-types", headers=key, trust_env=False, timeout=30)
        assert answer.status_code == 200
        assert httpx.get(f"{given['REDRIVE_URL']}/docs", trust_env=False, timeout=30).status_code == 200
    finally:
        api = [each for each in servers.run.state.processes if each.name == "api"]
        for process in api:
            os.kill(process.identity.pid, signal.SIGKILL)
        thread.join(60)
    assert isinstance(ended[0], ProcessDied)
    assert "api ended with -9. The end of its log" in str(ended[0])
    assert not env.exists()
    names = {"api", "worker-1", "dlq-consumer", "third-party", "sink"}
    assert not names & {each.name for each in servers.run.state.processes}
    assert empty_database.value("select count(*) from redrive.api_keys where revoked_at is null") == 0


def test_a_process_that_does_not_start_is_shown_with_its_log(
    servers: Servers, urls: ServerUrls, tmp_path: Path
) -> None:
    stack = Stack.over(servers.run, urls, tmp_path, print, {"REDRIVE_API_BODY_LIMIT": "1"})
    try:
        stack.set_up("test")
        with pytest.raises(ProcessDied, match=r"(?s)api ended with \d+.*REDRIVE_API_BODY_LIMIT"):
            stack.start()
    finally:
        stack.stop()
