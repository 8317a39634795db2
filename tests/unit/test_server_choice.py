"""Where servers come from, decided from variables and from what was found on the machine."""

from __future__ import annotations

import pytest

from dev.runs import Purpose
from dev.servers.choice import Docker, WrongEnvironment, choose, forced_kind, named_urls
from dev.servers.contract import Kind, ServersFailed, ServerUrls
from dev.servers.environment import advice
from dev.servers.readiness import NotReady, Question, wait_until_ready

URLS = {
    "REDRIVE_AMQP_URL": "amqp://u:p@broker:5672/%2F",
    "REDRIVE_MANAGEMENT_URL": "http://u:p@broker:15672/",
    "REDRIVE_DATABASE_URL": "postgresql://u:p@db:5432/redrive",
}
TEST_URLS = {name.replace("REDRIVE_", "REDRIVE_TEST_"): value for name, value in URLS.items()}
YES, NO = Docker(usable=True, engine=True), Docker(usable=False, engine=False, problem="no engine answers")


@pytest.mark.parametrize(("purpose", "urls"), [("up", URLS), ("demo", URLS), ("test", TEST_URLS)])
def test_all_three_urls_name_the_servers(purpose: Purpose, urls: dict[str, str | None]) -> None:
    expected = ServerUrls(
        "amqp://u:p@broker:5672/%2F", "http://u:p@broker:15672", "postgresql://u:p@db:5432/redrive"
    )
    assert expected == named_urls(purpose, urls)


@pytest.mark.parametrize(("purpose", "urls"), [("test", URLS), ("demo", TEST_URLS), ("up", {})])
def test_the_tests_never_use_the_servers_of_a_live_system_nor_the_reverse(
    purpose: Purpose, urls: dict[str, str | None]
) -> None:
    assert named_urls(purpose, urls) is None


def test_an_empty_variable_names_nothing() -> None:
    assert named_urls("up", dict.fromkeys(URLS, " ")) is None


@pytest.mark.parametrize("missing", URLS)
@pytest.mark.parametrize("absent", [None, ""])
def test_partly_named_servers_are_refused_with_the_missing_name(missing: str, absent: str | None) -> None:
    with pytest.raises(WrongEnvironment, match=f"^{missing} must be set beside"):
        named_urls("up", {**URLS, missing: absent})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDRIVE_AMQP_URL", "http://broker"),
        ("REDRIVE_MANAGEMENT_URL", "broker:15672"),
        ("REDRIVE_DATABASE_URL", "postgresql:///redrive"),
        ("REDRIVE_AMQP_URL", "amqp://user:u:p@#x@host"),
        ("REDRIVE_MANAGEMENT_URL", "http://u:p@host:p"),
        ("REDRIVE_DATABASE_URL", "postgresql://user:u:p@/secret@host/db"),
    ],
)
def test_a_url_of_another_kind_is_refused_by_name_without_its_secrets(name: str, value: str) -> None:
    with pytest.raises(WrongEnvironment, match=name) as refusal:
        named_urls("up", {**URLS, name: value})
    assert "u:p@" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["environment", "docker", "local"])
def test_the_forced_kind_is_read(kind: str) -> None:
    assert forced_kind({"REDRIVE_SERVERS": kind}) == kind


@pytest.mark.parametrize("value", [None, "", " "])
def test_nothing_is_forced_by_default(value: str | None) -> None:
    assert forced_kind({"REDRIVE_SERVERS": value}) is None


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(WrongEnvironment, match="'podman'; it may be environment, docker, local"):
        forced_kind({"REDRIVE_SERVERS": "podman"})


@pytest.mark.parametrize(
    ("named", "forced", "docker", "expected"),
    [
        (True, None, YES, "environment"),
        (False, None, YES, "docker"),
        (False, None, NO, "local"),
        (True, None, NO, "environment"),
        (True, "docker", YES, "docker"),
        (True, "local", YES, "local"),
        (True, "environment", NO, "environment"),
    ],
)
def test_environment_then_docker_then_local_unless_forced(
    named: bool, forced: Kind | None, docker: Docker, expected: Kind
) -> None:
    assert choose("up", named, forced, docker) == expected


def test_forcing_what_is_not_there_says_what_is_missing() -> None:
    with pytest.raises(WrongEnvironment, match="no engine answers"):
        choose("up", False, "docker", NO)
    with pytest.raises(WrongEnvironment, match="none of REDRIVE_TEST_AMQP_URL"):
        choose("test", False, "environment", YES)


@pytest.mark.parametrize(
    ("purpose", "environment", "expected"),
    [
        ("up", {}, "is set in .env."),
        ("up", {"REDRIVE_AMQP_URL": " "}, "is set in .env."),
        ("up", URLS, "is set in the environment of this shell."),
        ("up", {**URLS, "REDRIVE_KEY": "k"}, "sourced from `.local/up/env` of a `make up` that has ended"),
        ("test", {**TEST_URLS, "REDRIVE_KEY": "k"}, "is set in the environment of this shell."),
    ],
)
def test_named_servers_that_do_not_answer_are_told_with_where_they_are_named(
    purpose: Purpose, environment: dict[str, str], expected: str
) -> None:
    variable = "REDRIVE_TEST_AMQP_URL" if purpose == "test" else "REDRIVE_AMQP_URL"
    told = advice(variable, purpose, environment)
    assert told.startswith(variable)
    assert expected in told
    assert "u:p@" not in told


def test_a_failed_wait_has_the_advice_and_no_empty_log() -> None:
    def ask() -> None:
        raise NotReady("no answer")

    with pytest.raises(ServersFailed) as failed:
        wait_until_ready([Question("the broker", ask, advice="Set X.")], seconds=0, say=print)
    assert str(failed.value) == "the broker did not answer within 0 s (last: no answer).\nSet X."
