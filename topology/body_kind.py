"""What a body is that is neither JSON nor text: named, never opened."""

from __future__ import annotations

from topology.wire import MalformedProperties, Properties, split

# What compressed bytes begin with: RFC 1952, RFC 8878, bzip2, xz. zlib (RFC 1950) has no such mark.
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
# How kombu's header `compression` and the property `content_encoding` spell it.
_SPELLED = {
    "application/x-gzip": "zlib", "gzip": "gzip", "x-gzip": "gzip", "deflate": "zlib", "zlib": "zlib",
    "application/x-bz2": "bzip2", "bzip2": "bzip2", "application/x-brotli": "brotli", "br": "brotli",
    "application/x-lzma": "lzma", "application/zstd": "zstd", "zstd": "zstd",
}  # fmt: skip
_PICKLE_TYPES = ("application/x-python-serialize", "application/x-python-pickle")
_PICKLE_PROTOCOLS = range(2, 6)


def body_kind(raw: bytes, body: bytes) -> str | None:
    """Such as `compressed (gzip)` or `pickle`; None where nothing says so.

    Args:
        raw: the property list.
    """
    try:
        said = split(raw)
    except MalformedProperties:
        said = Properties()
    compression = said.get_header("compression")
    encoding = said.text("content_encoding")
    for name in (compression, encoding):
        if isinstance(name, str) and (method := _SPELLED.get(name.lower())):
            return f"compressed ({method})"
    for magic, method in _MAGIC.items():
        if body.startswith(magic):
            return f"compressed ({method})"
    if said.text("content_type") in _PICKLE_TYPES:
        return "pickle"
    # From protocol 2 on a pickle begins with its protocol and ends with STOP.
    if len(body) > 2 and body[0] == 0x80 and body[1] in _PICKLE_PROTOCOLS and body[-1:] == b".":
        return "pickle"
    return None
