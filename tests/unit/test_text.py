"""What Postgres refuses in text is spelled out, and what is too long keeps its head and its tail."""

from hypothesis import given
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


def test_a_spelled_escape_stays_apart_from_a_real_one() -> None:
    assert safe_text("\x00 and \\u0000") != safe_text("\x00 and \x00")


def test_a_long_text_keeps_its_end() -> None:
    safe = safe_text("Traceback " + "x" * 10_000 + " ValueError: the end", 200)

    assert safe.startswith("Traceback")
    assert safe.endswith("ValueError: the end")
    assert "left out" in safe
