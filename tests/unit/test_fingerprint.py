"""Tracebacks as this Python prints them, and as others do: the frame that groups letters."""

from __future__ import annotations

import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import pytest

from dlq_consumer.fingerprint import group_of, steady, top_frame
from dlq_consumer.traceback_text import last_stack
from storage.text import safe_text


def printed(place: Path, code: str, call: str = "run()") -> str:
    """What is printed of the exception that `call` raises, the code being in the file `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(textwrap.dedent(code))
    names: dict[str, Any] = {}
    exec(compile(place.read_text(), str(place), "exec"), names)
    try:
        eval(call, names)
    except (ArithmeticError, LookupError, RuntimeError, ValueError, ExceptionGroup):
        return traceback.format_exc()
    raise AssertionError("nothing was raised")


CHAINED = """
    import json
    def first(): raise KeyError("k")
    def second():
        try: first()
        except KeyError as error: raise ValueError("v") from error
    def third():
        try: second()
        except ValueError: raise RuntimeError("r")
    def run(): third()
"""
LIBRARY = """
    import json
    def parse(): return json.loads("{")
    def run(): parse()
"""
NESTED_MESSAGE = '''
    TEXT = """x
    Traceback (most recent call last):
      File "/other/made/up.py", line 1, in elsewhere
    KeyError: 1"""
    def run(): raise ValueError(TEXT)
'''
MADE = """
    def inner(): exec("def f(): return 1 / 0\\nf()", {})
    def run(): inner()
"""
GROUP = """
    def member(): raise ValueError("one")
    def gather():
        errors = []
        for call in (member, member):
            try: call()
            except ValueError as error: errors.append(error)
        raise ExceptionGroup("several", errors)
    def run(): gather()
"""
LONG_LINE = """
    def run():
        return (1 +
            [2, 3][5] + 4)
"""


@pytest.mark.parametrize(
    ("code", "function"),
    [
        (CHAINED, "third"),
        (LIBRARY, "parse"),
        (NESTED_MESSAGE, "run"),
        (MADE, "inner"),
        (GROUP, "gather"),
        (LONG_LINE, "run"),
    ],
    ids=["chained", "library", "message", "exec", "group", "carets"],
)
def test_the_frame_of_a_traceback_of_this_python(tmp_path: Path, code: str, function: str) -> None:
    text = printed(tmp_path / "shop" / "orders.py", code)
    assert top_frame(text) == f"shop/orders.py:{function}"
    assert top_frame(safe_text(text, len(text) * 2)) == f"shop/orders.py:{function}"


def test_a_recursion_without_end_is_one_wherever_it_stopped(tmp_path: Path) -> None:
    code = """
        def b(n): return a(n + 1)
        def a(n): return b(n + 1)
        def deeper(n): return a(n) if n == 0 else deeper(n - 1)
        def run(n): return deeper(n)
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    try:
        texts = [printed(tmp_path / "shop" / "tree.py", code, f"run({depth})") for depth in (0, 1, 2, 3)]
    finally:
        sys.setrecursionlimit(limit)
    assert len({last_stack(text).frames[-1] for text in texts}) == 2
    assert {top_frame(text) for text in texts} == {"shop/tree.py:a"}
    assert {top_frame(safe_text(text, 2_000)) for text in texts} == {"shop/tree.py:a"}


def test_an_ordinary_recursion_ends_where_it_raised(tmp_path: Path) -> None:
    code = """
        def check(): raise ValueError("no")
        def walk(n): return check() if n == 0 else walk(n - 1)
    """
    assert top_frame(printed(tmp_path / "a" / "b.py", code, "walk(40)")) == "a/b.py:check"


@pytest.mark.parametrize("length", range(150, 900, 37))
def test_a_traceback_that_was_cut_keeps_its_frame(tmp_path: Path, length: int) -> None:
    text = printed(tmp_path / "shop" / "orders.py", CHAINED.replace('"k"', '"k" * 2000'))
    assert top_frame(safe_text(text, max(length, 450))) == "shop/orders.py:third"


def frame(path: str, function: str = "place") -> str:
    return (
        "Traceback (most recent call last):\n"
        '  File "/srv/app/main.py", line 1, in <module>\n    start()\n'
        f'  File "{path}", line 7, in {function}\n    check()\n    ~~~~~^^\n'
        "ValueError: no\n"
    )


@pytest.mark.parametrize(
    ("path", "task", "found"),
    [
        # One file, wherever it was deployed.
        ("/srv/app/shop/orders.py", None, "shop/orders.py:place"),
        ("/home/ann/src/releases/20260131101500/shop/orders.py", None, "shop/orders.py:place"),
        ("C:\\srv\\app\\shop\\orders.py", None, "shop/orders.py:place"),
        ("\\\\host\\share\\shop\\orders.py", None, "shop/orders.py:place"),
        ("/srv/releases/20260131101500/orders.py", None, "orders.py:place"),
        ("/srv/releases/4f9a01c/orders.py", None, "orders.py:place"),
        ("/srv/shop/1.8.2/orders.py", None, "orders.py:place"),
        # Installed packages, the standard library and made code are not ours.
        ("/srv/.venv/lib/python3.11/site-packages/x/y.py", None, "app/main.py:<module>"),
        ("C:\\venv\\Lib\\site-packages\\x\\y.py", "shop.place", "app/main.py:<module>"),
        ("C:\\Python311\\Lib\\json\\decoder.py", None, "app/main.py:<module>"),
        ("C:\\Users\\a\\miniconda3\\envs\\e\\Lib\\json\\decoder.py", None, "app/main.py:<module>"),
        ("/usr/lib/python3.11/json/decoder.py", None, "app/main.py:<module>"),
        ("<frozen importlib._bootstrap>", None, "app/main.py:<module>"),
        # But the package of the task is, also where it was installed, in whatever environment.
        ("/srv/.venv/lib/python3.11/site-packages/shop/orders.py", "shop.place", "shop/orders.py:place"),
        ("/opt/env-2/lib/python3.13/site-packages/shop/orders.py", "shop.place", "shop/orders.py:place"),
        ("/opt/env-2/lib/python3.13/site-packages/shopping/a.py", "shop.place", "app/main.py:<module>"),
    ],
)  # fmt: skip
def test_where_a_file_lies_does_not_matter(path: str, task: str | None, found: str) -> None:
    assert top_frame(frame(path), task) == found


def test_without_a_frame_of_ours_it_is_the_deepest() -> None:
    text = '  File "<string>", line 1, in a\n  File "/v/site-packages/x/y.py", line 1, in b\n'
    assert top_frame(text) == "x/y.py:b"
    assert top_frame("ValueError: no") is None


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("Error_0x7f12ab34", "Error_*"),
        ("Made_140230023", "Made_*"),
        ("m.Error-3f2b8c1e-9a4d-4c7b-8f00-0123456789ab", "m.Error-*"),
        ("abc.4f9a01c.Error", "abc.*.Error"),
        ("HTTP404Error", "HTTP404Error"),
        ("ORA_00942", "ORA_00942"),
        ("requests.exceptions.ConnectionError", "requests.exceptions.ConnectionError"),
        ("Defaced", "Defaced"),
        ("make.<locals>.Boom", "make.<locals>.Boom"),
    ],
)
def test_what_is_generated_in_a_name_does_not_matter(name: str, same: str) -> None:
    assert steady(name) == same
    groups = [
        group_of(queue="q", task="t", reason="exception", exception_type=each, frame=None)
        for each in (name, same)
    ]
    assert groups[0] == groups[1]
