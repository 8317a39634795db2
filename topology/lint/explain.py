"""The page that tells what a finding means, how the message is lost, and what to do."""

from __future__ import annotations

from importlib.resources import files

from topology.errors import TopologyError
from topology.lint.codes import CATALOGUE


class UnknownCodeError(TopologyError):
    """No finding has this code."""


def page(code: str) -> str:
    """The page of a code, as Markdown.

    Args:
        code: upper or lower case.

    Raises:
        UnknownCodeError: none of the catalogue's; the message names similar ones.
    """
    known = CATALOGUE.get(code.strip().upper())
    if known is None:
        raise UnknownCodeError(f"no code {code!r}{_similar(code)}; all: topology explain")
    return files("topology.lint").joinpath("pages", f"{known.code}.md").read_text(encoding="utf-8")


def _similar(code: str) -> str:
    # Imported here: only a mistyped code needs it.
    from difflib import get_close_matches

    close = get_close_matches(code.strip().upper(), CATALOGUE, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
