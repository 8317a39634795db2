"""`dlq edit`"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import LETTER_ID
from dlq_consumer.commands.running import Load, fail, topology_of, with_database
from dlq_consumer.commands.wording import NAME, Words
from storage import letter_edits, letters
from storage.letter_actions import MAX_NOTE, ActionRefusedError
from storage.letter_edits import NewEdit
from storage.letters import Dossier
from storage.pool import Pool
from storage.text import safe_json
from topology import exits
from topology.editing import Edit, EditRefusedError, edit
from topology.exact_json import dump, load
from topology.json_patch import PatchError, apply
from topology.letter_document import NoDocumentError, document_of
from topology.messages import Message
from topology.redaction import parse_paths
from topology.spec import Topology

Change = Callable[[Any], Any]


@click.command("edit")
@click.argument("letter_id", type=LETTER_ID, metavar="ID")
@click.option("--patch", metavar="FILE|-|JSON", help="JSON Patch (RFC 6902). Without: your $EDITOR opens.")
@click.option("--no-validate", is_flag=True, help="Keep what a worker or the job's model refuses. On record.")
@click.option("--original", is_flag=True, help="Start from the letter as it came, not from its last edit.")
@click.option("--withdraw", is_flag=True, help="A replay sends the letter as it came again.")
@click.option("--note", type=Words(MAX_NOTE), default="", help="Why. Kept with the edit.")
@click.option("--by", type=NAME, help="Who edits (default: the user running this).")
@click.option("--dry-run", is_flag=True, help="Check and show the changes, and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def edit_letter(
    load: Load, letter_id: int, patch: str | None, no_validate: bool, original: bool, withdraw: bool,
    note: str, by: str | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Change what a replay of an open letter sends. The letter itself is kept as it came.

    Changed is {"args": [...], "kwargs": {...}} of a task, the body of any other message. The edit gets a
    message id of its own; its job stays the same one. It is checked: a worker must take it, and the payload
    must fit the model of the job type.

    Exit codes: 1 it does not pass, or nothing is changed, 2 no JSON Patch, or one that does not fit the
    letter, 4 the letter does not allow it.

    Example: dlq edit 17 --patch '[{"op": "replace", "path": "/kwargs/amount", "value": 5}]'
    """
    who = by or getpass.getuser()
    if withdraw:
        if patch is not None or original or no_validate or dry_run:
            raise click.UsageError("--withdraw goes alone, with --note and --by")
        _withdraw(load, letter_id, who, note, as_json)
        return
    topology = topology_of(load)
    change = _patching(patch) if patch is not None else None
    found = with_database(load, lambda pool: letters.dossier(pool, letter_id))
    message = Message(*found.to_send(original=original))
    made = _made(found, message, change, topology, validate=not no_validate)
    shown: dict[str, Any] = {
        "letter": letter_id, "message_id": made.message_id, "changes": made.changes, "checked": made.checked,
    }  # fmt: skip
    if not dry_run:
        new = NewEdit(made.message_id, made.message.properties, made.message.body, made.changes, made.checked)
        last = None if found.edit is None else found.edit.id

        async def keep(pool: Pool) -> int:
            try:
                return await letter_edits.store(pool, letter_id, new, by=who, why=note, last=last)
            except ActionRefusedError as error:
                fail(str(error), exits.CONFLICT if error.conflict else exits.FAILED)

        shown["edit"] = with_database(load, keep, changes=True)
    if as_json:
        printing.json_line(safe_json(shown))
        return
    for each in made.changes:
        printing.block(f"{each['op']} {printing.plain(each['path'])}", _value(each))
    click.echo(f"\nchecked: {made.checked}")
    if not dry_run:
        click.echo(f"edit {shown['edit']}, message id {made.message_id}. Send it: dlq replay {letter_id}")


def _withdraw(load: Load, letter_id: int, by: str, note: str, as_json: bool) -> None:
    async def run(pool: Pool) -> None:
        try:
            await letter_edits.withdraw(pool, letter_id, by=by, why=note)
        except ActionRefusedError as error:
            fail(str(error), exits.CONFLICT if error.conflict else exits.FAILED)

    with_database(load, run, changes=True)
    if as_json:
        printing.json_line({"letter": letter_id, "edit": None})
    else:
        click.echo(f"a replay sends letter {letter_id} as it came")


def _patching(given: str) -> Change:
    try:
        if given.lstrip().startswith(("[", "{")):  # an object is no patch, and mostly no file either
            text = given.encode("utf-8", "surrogateescape")
        elif given == "-":
            text = sys.stdin.buffer.read()
        else:
            text = Path(given).read_bytes()
        patch, _ = load(text)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"no JSON Patch: {error}", param_hint="--patch") from None
    return lambda document: apply(document, patch)


def _made(
    found: Dossier, message: Message, change: Change | None, topology: Topology, *, validate: bool
) -> Edit:
    redacted = parse_paths(",".join(found.marks.redacted))
    try:
        if change is None:
            return _by_editor(message, topology, validate=validate, redacted=redacted)
        return edit(message, change, topology=topology, validate=validate, redacted=redacted)
    except PatchError as error:
        raise click.BadParameter(str(error), param_hint="--patch") from None
    except (NoDocumentError, EditRefusedError) as error:
        fail(f"letter {found.letter.id}: {error}")


def _by_editor(message: Message, topology: Topology, *, validate: bool, redacted: Any) -> Edit:
    """Opened again, with what was typed, until it passes or is given up."""
    text = dump(document_of(message.properties, message.body).value, indent=2).decode()
    while True:
        typed: str | None = click.edit(text, extension=".json", require_save=False)
        if typed is None:
            fail("the editor gave nothing back")
        try:
            value = load(typed.encode("utf-8", "surrogateescape"))[0]
            typed_in = partial(_instead, value)
            return edit(message, typed_in, topology=topology, validate=validate, redacted=redacted)
        except ValueError as error:
            click.echo(f"dlq: {error}", err=True)
            text = typed
        click.confirm("edit again?", abort=True, err=True)


def _instead(value: Any, document: Any) -> Any:
    return value


def _value(change: dict[str, Any]) -> str:
    return dump(change["value"], indent=1).decode() if "value" in change else ""
