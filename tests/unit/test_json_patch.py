"""JSON Patch as RFC 6902 has it, and numbers that keep their digits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.exact_json import dump, load
from topology.json_patch import PatchError, apply, diff, same

# The examples of RFC 6902, appendix A, and what its text says beyond them.
TAKEN: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": [1, 3]}, [{"op": "add", "path": "/foo/1", "value": 2}], {"foo": [1, 2, 3]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": [2, 3, 1]}),
    ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
    ({"foo": ["a", 2]}, [{"op": "test", "path": "/foo/1", "value": 2.0}], {"foo": ["a", 2]}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
    ({"": 1}, [{"op": "remove", "path": "/"}], {}),
    ({"a": 1}, [{"op": "add", "path": "/a", "value": None}], {"a": None}),
]  # fmt: skip
REFUSED: list[tuple[Any, Any]] = [
    ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}]),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": True}]),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}]),
    ({"a": []}, [{"op": "add", "path": "/a/1", "value": 1}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/01"}]),
    ({"a": [1]}, [{"op": "remove", "path": "/a/-"}]),
    ({"a": 1}, [{"op": "replace", "path": "/b", "value": 1}]),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}]),
    ({"a": 1}, [{"op": "add", "path": "/b"}]),
    ({"a": 1}, [{"op": "remove", "path": ""}]),
    ({"a": 1}, [{"op": "drop", "path": "/a"}]),
    ({"a": 1}, [{"op": "remove", "path": "a"}]),
    ({"a": 1}, [{"op": "remove", "path": "/~2"}]),
    ({"a": 1}, {"op": "remove", "path": "/a"}),
    ({"a": 1}, ["remove"]),
]


@pytest.mark.parametrize(("document", "patch", "made"), TAKEN)
def test_a_patch_does_what_the_rfc_says(document: Any, patch: Any, made: Any) -> None:
    before = json.dumps(document)
    assert apply(document, patch) == made
    assert json.dumps(document) == before


@pytest.mark.parametrize(("document", "patch"), REFUSED)
def test_a_patch_that_does_not_fit_is_refused_whole(document: Any, patch: Any) -> None:
    before = json.dumps(document)
    with pytest.raises(PatchError):
        apply(document, patch)
    assert json.dumps(document) == before


@pytest.mark.parametrize(
    "document",
    [{"a": [[]]}, {"a": ["x" * 1_000]}, {"a": [10**300]}, load(b'{"a": [0.%s]}' % (b"1" * 1_000))[0]],
)
def test_copies_of_copies_end_before_memory_does(document: Any) -> None:
    patch = [{"op": "copy", "from": "/a", "path": "/a/-"}]
    assert len(dump(apply(document, patch * 3))) < 10_000
    with pytest.raises(PatchError, match=r"operation \d+: copies make more than 16,777,216 bytes"):
        apply(document, patch * 40)


def test_what_is_moved_about_is_not_copied() -> None:
    there, back = {"op": "move", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a"}
    document = {"a": ["x" * 10_000] * 100}
    assert apply(document, [there, back] * 50) == document


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(old=values, new=values)
def test_a_diff_leads_from_one_document_to_the_other(old: Any, new: Any) -> None:
    assert same(apply(old, diff(old, new)), new)
    assert (diff(old, new) == []) is same(old, new)


def test_what_is_not_changed_keeps_its_text() -> None:
    text = b'{"a": 12345678901234567890.10, "b": [1e2, -0.0, 12345678901234567890123], "c": "\\ud800"}'
    value, repeated = load(text)
    assert (dump(value), repeated) == (text, False)
    patched = apply(value, [{"op": "add", "path": "/d", "value": 1.5}])
    assert dump(patched) == text[:-1] + b', "d": 1.5}'
    (other, _) = load(text.replace(b".10", b".11"))
    assert [change["path"] for change in diff(value, other)] == ["/a"]
    assert load(b'{"a": {"k": 1, "k": 2}}') == ({"a": {"k": 2}}, True)


@pytest.mark.parametrize("text", [b"\xff", b"{", b"[" * 100_000])
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(text)
