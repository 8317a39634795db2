"""An exception that says what was recorded of it, whatever its class makes of its arguments.

Only its text is on record. A class that builds its text from its arguments would wrap it a second time
(`KeyError('k')` says `'k'`, with the quotes), or cannot be called with a text alone.
"""

from __future__ import annotations

from typing import Any


def saying(kind: type[BaseException], text: str) -> BaseException:
    """An instance of `kind` whose `str()` is `text`; its `args` are as a rule `(text,)`.

    Raises:
        Exception: whatever `kind` raises where it cannot be made at all.
    """
    for make in (_called, _bare):
        try:
            error = make(kind, text)
            if str(error) == text and repr(error):
                return error
        except Exception:  # noqa: BLE001, S112 - other people's code; the next way does without it
            continue
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    said = type(kind.__name__, (kind,), {**names, "__str__": _text, "__repr__": _shown, "__reduce__": _parts})
    error = _bare(said, text)
    error._redrive = kind, text  # type: ignore[attr-defined]
    return error


def _called(kind: type[BaseException], text: str) -> BaseException:
    return kind(text)


def _bare(kind: type[BaseException], text: str) -> BaseException:
    """Without its `__init__`."""
    error = kind.__new__(kind, text)
    error.args = (text,)
    return error


def _text(error: Any) -> str:
    return str(error._redrive[1])


def _shown(error: Any) -> str:
    kind, text = error._redrive
    return f"{kind.__name__}({text!r})"


def _parts(error: Any) -> tuple[Any, ...]:
    return saying, error._redrive
