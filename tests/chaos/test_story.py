"""The story of `make demo`, told over the tests' servers."""

from __future__ import annotations

import re

import pytest

from dev.servers import ServerUrls
from dev.story.scenario import tell_story
from tests.support.databases import Database
from tests.support.servers import Servers
from tests.support.vhosts import Vhost

STEPS = (
    "A job that succeeds",
    "The third party answers 503 twice, then works",
    "The third party answers 429 with Retry-After: 3",
    "The same Idempotency-Key three times",
    "A poisoned job",
    "Bytes that are no Celery message",
    "The cause is fixed, and the poisoned job replayed",
    "A worker is killed with SIGKILL in the middle of a job",
    "Nothing is lost, nothing is twice",
)


def test_every_step_of_the_story_is_seen(
    servers: Servers, vhost: Vhost, empty_database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = ServerUrls(vhost.amqp_url, vhost.management_url, empty_database.url)
    assert tell_story(servers.run, urls, print) == len(STEPS)
    told = capsys.readouterr().out
    for number, step in enumerate(STEPS, 1):
        assert f"\n{number}. {step}" in told
    # What each step saw is checked where it is told; these are the sentences that say so.
    for number in (1, 2):  # jitter chooses the steps
        assert re.search(rf"try {number} got 503; then waited [\d.]+ s in payments\.retry\.\d+m?s", told)
    assert "Idempotent-Replayed: true" in told
    assert "reason undecodable" in told
    assert "1.1 failed, 2.1 succeeded" in told
    lost, then = r"lost on (worker-[12]@redrive)", r"succeeded on (?!\1)worker-[12]@redrive"
    assert re.search(f"{lost}; {then}", told)
    assert "= 7 SUCCEEDED + 1 open letter + 0 in the outbox + 0 in" in told
