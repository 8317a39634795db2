"""`dlq export`"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from dlq_consumer.commands.filtering import filter_options
from dlq_consumer.commands.running import Load, with_database
from dlq_consumer.commands.writing import STDOUT, told
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
        with _file(out) as write:
            async with pool.acquire() as connection, aclosing(export(connection, wanted)) as found:
                async for letter in found:
                    view = view_properties(letter.letter.properties)
                    write(letter.line(vars(view)))
                    count += 1
        return count

    count = with_database(load, run)
    click.echo(f"{count} letter{'' if count == 1 else 's'} exported", err=True)


@contextmanager
def _file(path: Path | None) -> Iterator[Callable[[Iterable[bytes]], None]]:
    """What writes. A named file appears at the end; any trouble with it ends the command."""
    if path is None:
        yield partial(_write, sys.stdout.buffer, STDOUT)
        _write(sys.stdout.buffer, STDOUT, (), last=True)
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with told(path):
            if path.exists():
                raise FileExistsError(errno.EEXIST, "is there already")
            file = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        with file:
            yield partial(_write, file, str(path))
            _write(file, str(path), (), last=True)
        with told(path):
            os.link(part, path)  # unlike a rename it takes nobody's place
    finally:
        with suppress(OSError):
            part.unlink()


def _write(file: BinaryIO, name: str, pieces: Iterable[bytes], *, last: bool = False) -> None:
    with told(name):
        file.writelines(pieces)
        if last:
            file.flush()
            with suppress(OSError):  # a pipe
                os.fsync(file.fileno())
