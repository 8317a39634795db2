"""What goes wrong with standard output, or a file, is none of the database's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dlq_consumer.commands.running import fail
from topology import exits

STDOUT = "standard output"


@contextmanager
def told(name: object) -> Iterator[None]:
    """Around a write inside of `with_database`, so that nobody takes its failure for the connection's:
    exit 1, without a word where the reader of a pipe has enough."""
    try:
        yield
    except BrokenPipeError:
        # What is left must not be written at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(exits.FAILED)
    except OSError as error:
        fail(f"{name}: {error.strerror}")
