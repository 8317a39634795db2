"""`dlq import`"""

from __future__ import annotations

import asyncio
import getpass
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import click

from dlq_consumer import printing
from dlq_consumer.commands.discarding import AS_JSON, BY, YES
from dlq_consumer.commands.running import Load, fail, with_database
from dlq_consumer.commands.wording import Words
from storage import imports
from storage.imports import Importer
from storage.letter_actions import MAX_NOTE
from storage.letter_line import MAX_LINE, BadLineError, LetterLine, parse
from storage.pool import Pool
from topology import exits

BATCH_LETTERS, BATCH_BYTES = 250, 8 * 1024 * 1024
# Bad lines that are named; the rest is counted.
NAMED = 20


@dataclass
class Findings:
    """What a look at every line found. `bad`: what is wrong with a line, by its number."""

    letters: int = 0
    doubtful: int = 0
    bad: dict[int, str] = field(default_factory=dict)


@click.command("import")
@click.argument("file", metavar="FILE|-")
@click.option("--skip-bad", is_flag=True, help="Store the good lines though others are bad.")
@click.option("--note", type=Words(MAX_NOTE), default="", help="Why. Kept with each letter.")
@BY
@YES
@click.option("--dry-run", is_flag=True, help="Only look at every line.")
@AS_JSON
@click.pass_obj
def import_letters(
    load: Load, file: str, skip_bad: bool, note: str, by: str | None, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Store the letters of a `dlq export`, in this or another database: their exact bytes under new ids.

    Every line is looked at first; with a bad one nothing is stored, unless --skip-bad. Then letters go in 250
    to a transaction; interrupted, it is run again: a letter that is here already is left alone.

    An import tells nobody: it raises no alert, reopens no group and runs no job. A letter whose replay was
    under way is open; when it may have been sent, it is replayed, of unknown outcome.

    Exit codes: 1 also when a line is bad, or not confirmed.

    Example: dlq import payments.jsonl --note "moved to the new cluster"
    """
    if file == "-" and not (yes or dry_run):
        raise click.UsageError("from standard input: give --yes too, there is nobody to ask")
    with _opened(file) as stream:
        found = _look(stream)
        for number, why in [*found.bad.items()][:NAMED]:
            click.echo(f"dlq: line {number}: {printing.plain(why)}", err=True)
        if len(found.bad) > NAMED:
            click.echo(f"dlq: and {len(found.bad) - NAMED} more bad lines", err=True)
        if found.bad and not skip_bad:
            fail("nothing is stored: --skip-bad leaves bad lines out")
        if found.doubtful:
            click.echo(
                f"dlq: {found.doubtful} were sent, perhaps, and nobody knows what came of it", err=True
            )
        done = {"stored": 0, "known": 0, "bad": len(found.bad)}
        if not dry_run:
            if found.letters > 1 and not yes:
                click.confirm(f"import {found.letters} letters?", abort=True, err=True)
            who = by or getpass.getuser()
            stored, known = with_database(load, lambda pool: _store(pool, stream, who, note), changes=True)
            done |= {"stored": stored, "known": known}
        else:
            done |= {"letters": found.letters}
    if as_json:
        printing.json_line(done)
    elif dry_run:
        click.echo(f"{found.letters} letters, {len(found.bad)} bad lines")
    else:
        click.echo(f"{done['stored']} letters stored, {done['known']} here already, {done['bad']} bad lines")
    if found.bad:
        sys.exit(exits.FAILED)


def _look(stream: BinaryIO) -> Findings:
    found = Findings()
    for number, line in _lines(stream):
        try:
            letter = _parsed(line)
        except BadLineError as error:
            found.bad[number] = str(error)
        else:
            found.letters += 1
            found.doubtful += bool(letter.doubtful)
    return found


async def _store(pool: Pool, stream: BinaryIO, by: str, note: str) -> tuple[int, int]:
    """How many were stored, and how many were here already."""
    importer = Importer(pool, by=by, note=note)
    await imports.require(pool)
    stored = known = 0
    try:
        for batch in _batches(stream):
            done = await importer.store(batch)
            stored, known = stored + done.stored, known + done.known
    except asyncio.CancelledError:
        click.echo(f"dlq: interrupted: {stored} letters are stored; run it again", err=True)
        raise
    return stored, known


def _batches(stream: BinaryIO) -> Iterator[list[LetterLine]]:
    batch: list[LetterLine] = []
    size = 0
    for _, line in _lines(stream):
        try:
            letter = _parsed(line)
        except BadLineError:
            continue  # told of before
        if batch and (len(batch) == BATCH_LETTERS or size + letter.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(letter)
        size += letter.size
    if batch:
        yield batch


def _parsed(line: bytes) -> LetterLine:
    if len(line) > MAX_LINE:
        raise BadLineError(f"has more than {MAX_LINE} bytes")
    return parse(line)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """From the top, each with its number; of one that is too long only the beginning."""
    stream.seek(0)
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        rest = line
        while len(rest) > MAX_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE + 1)
        if line.strip():
            yield number, line


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """The file; of what can be read only once, such as standard input, a copy."""
    try:
        source: BinaryIO = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: SIM115 - closed below
        stream = source
        if not source.seekable():
            stream = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - closed below
            shutil.copyfileobj(source, stream)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    with source, stream:
        yield stream
