"""What Postgres refuses in text is spelled out, and what is too long keeps its head and its tail."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from storage.text import safe_text


@given(st.text(st.characters()), st.integers(min_value=1, max_value=500))
def test_every_text_fits_postgres(text: str, limit: int) -> None:
    safe = safe_text(text, limit)

    safe.encode("utf-8")
    assert "\x00" not in safe
    assert len(safe) <= limit


def test_nul_and_lone_surrogates_are_spelled_out_and_not_stripped() -> None:
    assert safe_text("a\x00b\ud800c") == "a\\u0000b\\ud800c"


def undone(safe: str) -> str:
    def one(match: re.Match[str]) -> str:
        backslashes = "\\" * (len(match[1]) // 2)
        return backslashes + (chr(int(match[2], 16)) if len(match[1]) % 2 else f"u{match[2]}")

    return re.sub(r"(\\+)u(0000|d[89a-f][0-9a-f]{2})", one, safe)


pieces = st.sampled_from(
    ["\\", "u", "\x00", "\ud800", "\udfff", "u0000", "ud8", "udfff", "\\u0000", "00", "x"]
)


@given(st.one_of(st.text(st.characters()), st.lists(pieces, max_size=12).map("".join)))
@example("\\u0000")
@example("\\\x00")
@example("\\\\u0000\x00")
def test_the_spelling_can_be_undone(text: str) -> None:
    assert undone(safe_text(text, 10_000)) == text


def test_a_text_without_escapes_keeps_its_backslashes() -> None:
    text = r"C:\new\users \\server\u00e4 \d+"
    assert safe_text(text) == text


def test_a_spelled_escape_stays_apart_from_a_real_one() -> None:
    assert safe_text("\x00 and \\u0000") != safe_text("\x00 and \x00")


def test_a_long_text_keeps_its_end() -> None:
    safe = safe_text("Traceback " + "x" * 10_000 + " ValueError: the end", 200)

    assert safe.startswith("Traceback")
    assert safe.endswith("ValueError: the end")
    assert "left out" in safe
