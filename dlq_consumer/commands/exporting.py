"""`dlq export`"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import click

from dlq_consumer.commands.filtering import filter_options
from dlq_consumer.commands.running import Load, fail, with_database
from storage.exports import export
from storage.letter_filter import LetterFilter
from storage.pool import Pool
from topology.letter_view import view_properties


@click.command("export")
@filter_options
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="A new file; else standard output."
)
@click.pass_obj
def export_letters(load: Load, wanted: LetterFilter, out: Path | None) -> None:
    """Letters with their bytes, one JSON object per line, the lowest id first: for `dlq import`.

    Body and properties are exact, in base64; beside them is what `dlq list --json` shows, the group, the edit
    in force and the history. All letters are as they were at one moment. A FILE is there once it is whole,
    and its owner alone can read it. An export changes nothing.

    Exit codes: 1 also when FILE exists or cannot be written.

    Example: dlq export --queue payments --undecided --out payments.jsonl
    """

    async def run(pool: Pool) -> int:
        count = 0
        with _file(out) as file:
            async with pool.acquire() as connection, aclosing(export(connection, wanted)) as found:
                async for letter in found:
                    view = view_properties(letter.letter.properties)
                    file.writelines(letter.line(vars(view)))
                    count += 1
        return count

    try:
        count = with_database(load, run)
    except FileExistsError as error:
        fail(f"{error.filename} is there already")
    except OSError as error:
        fail(f"{out or 'standard output'}: {error.strerror}")
    click.echo(f"{count} letter{'' if count == 1 else 's'} exported", err=True)


@contextmanager
def _file(path: Path | None) -> Iterator[BinaryIO]:
    """Where to write. A named file appears at the end."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists():
        raise FileExistsError(0, "", str(path))
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # unlike a rename it takes nobody's place
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
