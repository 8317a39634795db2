"""Bodies that are neither JSON nor text are named by what they say or begin with."""

from __future__ import annotations

import bz2
import gzip
import pickle

import pytest

from topology.body_kind import body_kind
from topology.wire import properties

PLAIN = properties().encode()


@pytest.mark.parametrize(
    ("raw", "body", "kind"),
    [
        (PLAIN, b"[[], {}, {}]", None),
        (PLAIN, b"", None),
        (PLAIN, gzip.compress(b"x", mtime=0), "compressed (gzip)"),
        (PLAIN, bz2.compress(b"x"), "compressed (bzip2)"),
        (PLAIN, b"\x28\xb5\x2f\xfd\x00", "compressed (zstd)"),
        (properties(headers={"compression": "application/x-gzip"}).encode(), b"x", "compressed (zlib)"),
        (properties(headers={"compression": 7}).encode(), b"x", None),
        (properties(content_encoding="gzip").encode(), b"x", "compressed (gzip)"),
        (properties(content_encoding="utf-8").encode(), b"x", None),
        (properties(content_type="application/x-python-serialize").encode(), b"x", "pickle"),
        (PLAIN, pickle.dumps([1]), "pickle"),
        (PLAIN, pickle.dumps({"a": 1}, protocol=2), "pickle"),
        (PLAIN, b"\x80\x04 and no end", None),
        (b"\xff\xff\xff", gzip.compress(b"x", mtime=0), "compressed (gzip)"),
    ],
)
def test_a_body_is_named(raw: bytes, body: bytes, kind: str | None) -> None:
    assert body_kind(raw, body) == kind
