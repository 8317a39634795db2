"""Letters changed by hand: the original stays, a replay sends the edit, the job is the same."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.thirdparty.client import ThirdPartyClient
from tests.support.graveyard import Graveyard, order, plain, shared_graveyard
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.waiting import eventually
from topology.headers import DELIVERY_COUNTERS
from topology.wire import properties, split

OTHER = '[{"op": "replace", "path": "/kwargs/order", "value": "2"}]'


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Graveyard]]:
    with shared_graveyard(places, Graveyard) as made:
        yield made


@pytest.fixture
def graveyard(shared: Shared[Graveyard], request: pytest.FixtureRequest) -> Iterator[Graveyard]:
    with shared.lent(request.node) as lent:
        yield lent


def dead(graveyard: Graveyard, job: str = "j1") -> int:
    graveyard.job(job, "DEAD", reason="exception")
    graveyard.bury("orders", order(job))
    return int(graveyard.until_stored(1)[0]["id"])


def edit(graveyard: Graveyard, letter: int, *arguments: str) -> dict[str, Any]:
    done = graveyard.dlq_here("edit", str(letter), *arguments, "--by", "ada", "--json")
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_replay_sends_the_edit_of_the_same_job_under_a_message_id_of_its_own(graveyard: Graveyard) -> None:
    letter = dead(graveyard)
    (before,) = graveyard.letters()
    told = edit(graveyard, letter, "--patch", OTHER, "--note", "a typo")
    assert told["changes"] == json.loads(OTHER)
    assert told["checked"] == "the model of orders.place"
    shown = graveyard.shown(letter)
    assert graveyard.letters() == [before]
    assert shown["edit"]["body"]["json"][:2] == [[], {"order": "2"}]
    step = shown["history"][0]
    assert (step["action"], step["by"], step["why"], step["changes"], step["message_id"]) == (
        "edit", "ada", "a typo", told["changes"], told["message_id"],
    )  # fmt: skip
    assert graveyard.dlq_here("replay", str(letter), "--no-wait").exit_code == 0
    sent, _, body = graveyard.take("orders")
    assert json.loads(body)[:2] == [[], {"order": "2"}]
    assert sent.text("message_id") == told["message_id"] != "j1"
    original = split(before["properties"])
    assert sent.text("correlation_id") == original.text("correlation_id") == "j1"
    assert (sent.get_header("id"), sent.get_header("redrive-attempt")) == ("j1", "2.1")
    assert sent.get_header("kwargsrepr") == "{'order': '2'}"
    same = ("lang", "task", "root_id", "origin", "argsrepr")
    assert [sent.get_header(name) for name in same] == [original.get_header(name) for name in same]
    shown = graveyard.shown(letter)
    assert [item["edit"] for item in shown["replays"]] == [told["edit"]]
    assert (graveyard.job_row("j1")["state"], graveyard.job_row("j1")["generation"]) == ("QUEUED", 2)


def test_the_newest_edit_is_sent_and_none_once_it_is_withdrawn(graveyard: Graveyard) -> None:
    letter = dead(graveyard)
    edit(graveyard, letter, "--patch", OTHER)
    test = '[{"op": "test", "path": "/kwargs/order", "value": "2"}, '
    edit(graveyard, letter, "--patch", test + OTHER.replace('"2"', '"3"')[1:])
    assert graveyard.shown(letter)["edit"]["body"]["json"][1] == {"order": "3"}
    edit(graveyard, letter, "--original", "--patch", OTHER.replace('"2"', '"4"'))
    assert graveyard.dlq_here("edit", str(letter), "--withdraw").exit_code == 0
    assert graveyard.shown(letter)["edit"] is None
    assert graveyard.dlq_here("edit", str(letter), "--withdraw").exit_code == 4
    assert graveyard.dlq_here("replay", str(letter), "--no-wait").exit_code == 0
    sent, _, body = graveyard.take("orders")
    assert (body, sent.text("message_id")) == (graveyard.letters()[0]["body"], "j1")
    actions = [step["action"] for step in graveyard.shown(letter)["history"]]
    assert actions == ["edit", "edit", "edit", "withdraw"]


REFUSED = [
    ('[{"op": "replace", "path": "/kwargs/order", "value": 5}]', 1, "kwargs.order: Input should be"),
    ('[{"op": "remove", "path": "/kwargs/order"}]', 1, "kwargs.order: Field required"),
    ('[{"op": "add", "path": "/args/0", "value": 1}]', 1, "args: jobs of the catalogue take keywords only"),
    ('[{"op": "remove", "path": "/args"}]', 1, "a task message has args and kwargs"),
    ('[{"op": "replace", "path": "/kwargs", "value": []}]', 1, "kwargs must be an object"),
    ('[{"op": "test", "path": "/kwargs/order", "value": "1"}]', 1, "it changes nothing"),
    ('[{"op": "remove", "path": "/kwargs/other"}]', 2, "operation 0: there is nothing at '/kwargs/other'"),
    ("[", 2, "no JSON Patch"),
    ("{}", 2, "a patch is a list of operations"),
    ("/no/such/file", 2, "no JSON Patch"),
]  # fmt: skip


def test_what_does_not_pass_is_not_kept(graveyard: Graveyard) -> None:
    letter = dead(graveyard)
    for patch, code, said in REFUSED:
        done = graveyard.dlq_here("edit", str(letter), "--patch", patch)
        assert (patch, done.exit_code, said in done.stderr) == (patch, code, True), done.stderr
    edit(graveyard, letter, "--patch", OTHER, "--dry-run")
    assert graveyard.shown(letter)["edit"] is None
    told = edit(graveyard, letter, "--patch", REFUSED[0][0], "--no-validate")
    assert (told["checked"], graveyard.shown(letter)["history"][0]["checked"]) == ("not validated",) * 2


def test_only_an_open_letter_is_edited_and_nobody_overwrites_another_s_edit(graveyard: Graveyard) -> None:
    letter = dead(graveyard)
    assert graveyard.dlq_here("edit", "999", "--patch", OTHER).exit_code == 1
    graveyard.dlq_here("discard", str(letter), "--note", "n")
    refused = graveyard.dlq_here("edit", str(letter), "--patch", OTHER)
    assert (refused.exit_code, "only an open letter is edited" in refused.stderr) == (4, True)
    graveyard.dlq_here("restore", str(letter))
    graveyard.bury("mails", plain(b"not JSON"))
    other = graveyard.until_stored(2)[1]["id"]
    unread = graveyard.dlq_here("edit", str(other), "--patch", OTHER)
    assert (unread.exit_code, "cannot be read as JSON" in unread.stderr) == (1, True)


def test_a_body_that_is_no_task_keeps_all_but_the_change(graveyard: Graveyard) -> None:
    message = plain(
        b'{"total": 12345678901234567890.10, "n": 1}', headers={"x": 1}, content_type="application/json"
    )
    graveyard.bury("mails", message)
    (letter,) = graveyard.until_stored(1)
    told = edit(graveyard, letter["id"], "--patch", '[{"op": "replace", "path": "/n", "value": 2}]')
    assert told["checked"] == "no model for it"
    assert graveyard.dlq_here("replay", str(letter["id"])).exit_code == 0
    sent, _, body = graveyard.take("mails")
    assert body == b'{"total": 12345678901234567890.10, "n": 2}'
    # RabbitMQ 3.10 counts the first delivery too.
    without = sent.without("message_id").without_headers(["redrive-replay", *DELIVERY_COUNTERS])
    assert without == properties(headers={"x": 1}, content_type="application/json")
    assert sent.text("message_id") == told["message_id"]


def test_an_editor_is_opened_again_until_it_passes(graveyard: Graveyard, tmp_path: Path) -> None:
    letter = dead(graveyard)
    script = tmp_path / "editor"
    # The first time a value that the model refuses, then a good one.
    script.write_text(
        "#!/bin/sh\n"
        f'if [ -e {tmp_path}/again ]; then sed -i \'s/: 7/: "7"/\' "$1"; else\n'
        f'touch {tmp_path}/again; sed -i \'s/"1"/7/\' "$1"; fi\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    graveyard.settings["EDITOR"] = str(script)
    try:
        given_up = graveyard.dlq_here("edit", str(letter))
        assert (given_up.exit_code, "Input should be a valid string" in given_up.stderr) == (1, True)
        (tmp_path / "again").unlink()
        done = graveyard.dlq_here("edit", str(letter), typed="y\n")
    finally:
        del graveyard.settings["EDITOR"]
    assert done.exit_code == 0, done.output
    assert graveyard.shown(letter)["edit"]["body"]["json"][1] == {"order": "7"}


def test_an_edited_job_runs_to_its_end(stack: Stack, third_party: ThirdPartyClient) -> None:
    stack.apply_topology()
    stack.start_api()
    stack.start_worker()
    stack.start_consumer()
    third_party.fail("/payments", {"status": 400}, match={"payment_id": "bad"})
    payload = {"payment_id": "bad", "amount_cents": 5, "currency": "EUR"}
    job = stack.submit("payments.call_payment_api", payload, "k")
    stack.until(job, "DEAD")
    letter = "select id from redrive.dead_letters where job_id = $1"
    row = eventually(lambda: stack.database.fetch(letter, job), 30, "the letter is stored")[0]
    patch = [{"op": "replace", "path": "/kwargs/payment_id", "value": "good"}]
    answer = stack.http.post(f"/dead-letters/{row['id']}/edit", json={"patch": patch, "note": "a typo"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["edit"]["body"]["json"][1] == payload | {"payment_id": "good"}
    assert answer.json()["history"][-1]["by"].startswith("test-")
    wrong = [{"op": "replace", "path": "/kwargs/amount_cents", "value": -1}]
    refused = stack.http.post(f"/dead-letters/{row['id']}/edit", json={"patch": wrong})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "kwargs.amount_cents")
    replayed = stack.dlq("replay", str(row["id"]), "--json")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert json.loads(replayed.stdout)["items"][0]["outcome"] == "succeeded"
    assert (stack.job(job)["state"], stack.job(job)["id"]) == ("SUCCEEDED", job)
