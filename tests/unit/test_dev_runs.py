"""The record of a run, its lock, and what is generated for its servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import runs
from dev.errors import DevError
from dev.identity import Identity
from dev.leftovers import down
from dev.ports import free_ports
from dev.runs import (
    PURPOSES,
    AlreadyRunning,
    ProcessRecord,
    Purpose,
    RunState,
    load_state,
    open_run,
    save_state,
)
from dev.servers.compose import override_for, required_variables
from dev.servers.docker import PublishedPorts
from dev.servers.secrets import Secrets, keep
from dev.story import scenario

RECORD = ProcessRecord("rabbitmq", Identity(42, 777, "boot"), "mark", 15)


@pytest.fixture(autouse=True)
def _local_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LOCAL", tmp_path / ".local")


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = RunState(Identity(1, 2, "boot"), (RECORD,), ("label=x",), ("/var/tmp/redrive-up-x",))
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state


def test_without_a_record_nothing_is_owned(tmp_path: Path) -> None:
    assert load_state(tmp_path) == RunState()


@pytest.mark.parametrize("text", ["", "[]", '{"owner": null}', '{"owner": {"pid": 1}}'])
def test_a_broken_record_is_refused_by_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(DevError, match=r"state\.json does not hold the record of a run"):
        load_state(tmp_path)


def test_a_second_run_of_a_purpose_is_told_which_process_runs() -> None:
    run = open_run("up")
    run.start_record(RunState())
    assert run.state.owner is not None
    with pytest.raises(
        AlreadyRunning, match=rf"`make up` is running already in .*process {run.state.owner.pid}"
    ):
        open_run("up")
    with open_run("test").held:  # another purpose is free
        pass
    run.held.close()
    open_run("up").held.close()


def test_what_a_run_starts_is_on_the_record_at_once_and_off_it_when_ended() -> None:
    run = open_run("demo")
    with run.held:
        run.record(RECORD)
        run.record(container="label=x")
        run.record(container="label=x", directory=Path("/var/tmp/x"))
        assert load_state(run.directory) == RunState(None, (RECORD,), ("label=x",), ("/var/tmp/x",))
        run.forget(RECORD)
        assert load_state(run.directory).processes == ()


@pytest.mark.parametrize("alive", ["demo", "test"])
def test_down_leaves_a_live_run_alone_and_says_so_without_failing(alive: Purpose) -> None:
    for purpose in PURPOSES:
        open_run(purpose).held.close()
    told: list[str] = []
    with open_run(alive).held:
        assert down(told.append) == 0
        assert down(told.append, everything=True) == 1
    assert f"`make {alive}` is running: left alone; it ends and clears up by itself" in told
    assert "up: removed" in told
    assert runs.directory_of(alive).exists()
    assert not runs.directory_of("up").exists()


def test_down_fails_when_a_make_up_does_not_end() -> None:
    told: list[str] = []
    with open_run("up").held:  # it has no process on its record that could be asked
        assert down(told.append) == 1
    assert told[0].startswith("`make up` ")
    assert runs.directory_of("up").exists()


def test_a_demo_that_started_nothing_points_at_no_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs.directory_of("demo") / "logs").mkdir(parents=True)  # an earlier run's
    monkeypatch.setenv("REDRIVE_SERVERS", "podman")
    assert scenario.main() == 1
    told = capsys.readouterr().err
    assert "The demo failed: REDRIVE_SERVERS is 'podman'" in told
    assert "logs" not in told


def test_secrets_stay_with_the_data_and_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    first = keep(tmp_path)
    assert keep(tmp_path) == first
    assert len({first.broker_password, first.database_password, first.cookie}) == 3
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600


def test_ports_are_different_and_outside_the_range_of_outgoing_connections() -> None:
    ports = [port for purpose in PURPOSES for port in free_ports(5, purpose)]
    assert len(set(ports)) == 5 * len(PURPOSES)
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < lowest_outgoing


def test_the_override_publishes_on_loopback_only() -> None:
    text = override_for(Secrets("bpw", "dpw", "cookie", "node"), PublishedPorts(15001, 15002, 15003))
    published = [line.split('"')[1] for line in text.splitlines() if '- "' in line]
    assert published == ["127.0.0.1:15001:5672", "127.0.0.1:15002:15672", "127.0.0.1:15003:5432"]


def test_only_variables_that_compose_insists_on_are_made_up() -> None:
    file = "a: ${ONE:?set it} ${TWO?} ${THREE:-x} ${FOUR}\nb: ${ONE:?again}"
    assert required_variables(file, Secrets("b", "d", "c", "n")) == "ONE=c\nTWO=c\n"
