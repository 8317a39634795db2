"""The property codec: byte-exact for whatever is well formed, one error for whatever is not."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pika.frame
import pika.spec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from topology.wire import (
    HeaderEntry,
    MalformedProperties,
    NotEncodable,
    OddText,
    OddTimestamp,
    Pairs,
    Properties,
    RawProperties,
    Unparsed,
    decode_value,
    encode_value,
    install,
    properties,
    readable,
    split,
)

unhurried = settings(deadline=None)  # a busy machine is no failure

FIXED_SIZES = {
    b"t": 1, b"b": 1, b"B": 1, b"U": 2, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"L": 8, b"l": 8,
    b"f": 4, b"d": 8, b"D": 5, b"T": 8, b"V": 0,
}  # fmt: skip


def sized(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack(">I", len(data)) + data


def table(entries: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(bytes([len(key)]) + key + value for key, value in entries)


keys = st.binary(max_size=12) | st.sampled_from([b"x-death", b"\xff\xfe", b"", b"k" * 255])
fixed_values = st.sampled_from(sorted(FIXED_SIZES)).flatmap(
    lambda kind: st.binary(min_size=FIXED_SIZES[kind], max_size=FIXED_SIZES[kind]).map(
        lambda data: kind + data
    )
)
sized_values = st.builds(
    sized, st.sampled_from([b"S", b"x"]), st.binary(max_size=20) | st.text().map(str.encode)
)
raw_values = st.recursive(
    fixed_values | sized_values,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda values: sized(b"A", b"".join(values)))
        | st.lists(st.tuples(keys, inner), max_size=4).map(lambda entries: sized(b"F", table(entries)))
    ),
    max_leaves=10,
)
short_strings = st.binary(max_size=255)


@st.composite
def property_lists(draw: st.DrawFn) -> bytes:
    flags, pieces = draw(st.sampled_from([0, 2])), []
    for position in range(14):
        if draw(st.booleans()):
            flags |= 1 << (15 - position)
            if position == 2:
                data = table(draw(st.lists(st.tuples(keys, raw_values), max_size=5)))
                pieces.append(struct.pack(">I", len(data)) + data)
            elif position in (3, 4):
                pieces.append(draw(st.binary(min_size=1, max_size=1)))
            elif position == 9:
                pieces.append(draw(st.binary(min_size=8, max_size=8)))
            else:
                data = draw(short_strings)
                pieces.append(bytes([len(data)]) + data)
    more = draw(st.lists(st.integers(0, 0xFFFE).map(lambda word: word & 0xFFFE), max_size=2))
    words = [flags, *more]
    words = [word | 1 for word in words[:-1]] + words[-1:]
    return struct.pack(f">{len(words)}H", *words) + b"".join(pieces)


def with_raw_header(value: bytes, key: bytes = b"h") -> bytes:
    return Properties(headers=(HeaderEntry(key, value),)).encode()


@unhurried
@given(property_lists())
def test_a_well_formed_list_comes_back_byte_for_byte(raw: bytes) -> None:
    assert split(raw).encode() == raw


@unhurried
@given(property_lists())
def test_every_header_of_a_well_formed_list_is_decoded_and_said_in_json(raw: bytes) -> None:
    found = split(raw)
    json.dumps(found.readable_headers(), allow_nan=False)
    assert set(found.headers_dict()) == {entry.name for entry in found.headers or ()}


@unhurried
@given(property_lists(), st.data())
def test_a_list_cut_short_is_malformed(raw: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(MalformedProperties):
        split(raw[:cut])


@unhurried
@given(property_lists(), st.binary(min_size=1, max_size=5))
def test_bytes_after_the_list_are_malformed(raw: bytes, more: bytes) -> None:
    with pytest.raises(MalformedProperties):
        split(raw + more)


@unhurried
@given(st.binary(max_size=200))
def test_any_bytes_are_split_exactly_or_malformed(raw: bytes) -> None:
    try:
        found = split(raw)
    except MalformedProperties:
        return
    assert found.encode() == raw


@unhurried
@given(st.binary(max_size=100) | raw_values)
@example(b"")
@example(b"T" + b"\xff" * 8)
@example(b"F\x00\x00\x00\x03\x05ab")
def test_decoding_never_raises_and_always_gives_json(raw: bytes) -> None:
    json.dumps(readable(decode_value(raw)), allow_nan=False)


@unhurried
@given(raw_values)
def test_a_decoded_value_encodes_to_one_that_decodes_alike(raw: bytes) -> None:
    value = decode_value(raw)
    try:
        encoded = encode_value(value)
    except NotEncodable:
        return  # NaN and infinities
    assert decode_value(encoded) == value


def test_arrays_nested_20_000_deep_stay_bytes_at_depth_64() -> None:
    raw = b"V"
    for _ in range(20_000):
        raw = sized(b"A", raw)
    assert split(with_raw_header(raw)).encode() == with_raw_header(raw)
    json.dumps(readable(decode_value(raw)))


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"t\x01", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xfe", -2),
        (b"i\xff\xff\xff\xfe", 4294967294),
        (b"l" + b"\xff" * 8, -1),
        (b"d" + struct.pack(">d", 1.5), 1.5),
        (b"f" + struct.pack(">f", 0.25), 0.25),
        (b"D\x02\x00\x00\x30\x39", Decimal("123.45")),
        (b"V", None),
        (sized(b"S", "é".encode()), "é"),
        (sized(b"S", b"\xff"), OddText(b"\xff")),
        (sized(b"x", b"\x00\xff"), b"\x00\xff"),
        (b"T" + struct.pack(">Q", 1_700_000_000), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (b"T" + struct.pack(">Q", 1_700_000_000_000), OddTimestamp(1_700_000_000_000)),
        (b"T" + b"\xff" * 8, OddTimestamp(2**64 - 1)),
        (sized(b"A", b"V" + b"t\x00"), [None, False]),
        (sized(b"F", table([(b"a", b"V")])), {"a": None}),
        (sized(b"F", table([(b"\xff", b"V")])), {b"\xff": None}),
        (sized(b"F", table([(b"a", b"V"), (b"a", b"t\x01")])), Pairs((("a", None), ("a", True)))),
        (b"?what", Unparsed(b"?what")),
        (b"I\x00", Unparsed(b"I\x00")),
        (sized(b"A", b"I\x00"), Unparsed(sized(b"A", b"I\x00"))),
    ],
)
def test_decoded_values(raw: bytes, value: object) -> None:
    decoded = decode_value(raw)
    assert (type(decoded), decoded) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (True, b"t\x01"),
        (1, b"I\x00\x00\x00\x01"),
        (2**31, b"l" + struct.pack(">q", 2**31)),
        (1.5, b"d" + struct.pack(">d", 1.5)),
        ("é", sized(b"S", "é".encode())),
        (b"\x00", sized(b"x", b"\x00")),
        (Decimal("-1.50"), b"D\x02" + struct.pack(">i", -150)),
        (Decimal("3E+2"), b"D\x00" + struct.pack(">i", 300)),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))), b"T" + struct.pack(">Q", 3600)),
        ({"a": [1, {"b": None}]}, None),
    ],
)
def test_encoded_values(value: object, raw: bytes | None) -> None:
    encoded = encode_value(value)
    assert decode_value(encoded) == value
    if raw is not None:
        assert encoded == raw


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        2**63,
        "\ud800",
        {"k" * 256: 1},
        {"\ud800": 1},
        datetime(2026, 1, 1),  # noqa: DTZ001
        datetime(1969, 1, 1, tzinfo=UTC),
        OddTimestamp(2**64),
        Decimal("NaN"),
        Decimal(2**31),
        Decimal("1E-256"),
        Decimal("1E+999999"),
        pytest.param(object(), id="an object"),
        {1: "not a key"},
    ],
    ids=repr,
)
def test_values_that_rabbitmq_or_amqp_cannot_take_are_refused(value: object) -> None:
    with pytest.raises(NotEncodable):
        encode_value(value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), {"$float": "NaN"}),
        (float("-inf"), {"$float": "-Infinity"}),
        (1.0, 1.0),
        (True, True),
        (b"\x00\xff", {"$bytes": "AP8="}),
        (OddText(b"\xff"), {"$bytes": "/w==", "type": "S"}),
        (Unparsed(b"?"), {"$bytes": "Pw==", "type": "?"}),
        (Decimal("1.50"), {"$decimal": "1.50"}),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), {"$ts": "2026-01-31T12:00:00+00:00"}),
        (OddTimestamp(2**62), {"$ts": 2**62}),
        ({"a": [b""]}, {"a": [{"$bytes": ""}]}),
        ({b"\xff": 1, "a": 2}, {"$pairs": [[{"$bytes": "/w=="}, 1], ["a", 2]]}),
        ({"$ts": 1}, {"$pairs": [["$ts", 1]]}),
        (Pairs((("a", 1), ("a", 2))), {"$pairs": [["a", 1], ["a", 2]]}),
    ],
    ids=repr,
)
def test_readable_values(value: object, said: object) -> None:
    assert readable(value) == said


def test_headers_and_properties_can_be_changed_and_the_rest_stays() -> None:
    raw = with_raw_header(b"U\x00\x01", key=b"odd")
    changed = split(raw).with_header("a", "1").with_header("b", 2).with_header("a", "3")
    assert changed.headers_dict() == {"odd": 1, "a": "3", "b": 2}
    assert changed.without_headers(["a", "b", "never there"]).encode() == raw


def test_a_repeated_header_reads_as_its_first_and_is_replaced_once() -> None:
    entries = (HeaderEntry(b"a", b"t\x01"), HeaderEntry(b"b", b"V"), HeaderEntry(b"a", b"t\x00"))
    found = Properties(headers=entries)
    assert found.get_header("a") is True
    assert found.headers_dict() == {"a": True, "b": None}
    assert found.readable_headers() == {"$pairs": [["a", True], ["b", None], ["a", False]]}
    assert found.with_header("a", None).headers == (HeaderEntry(b"a", b"V"), HeaderEntry(b"b", b"V"))


def test_properties_are_removed_by_name() -> None:
    made = properties(expiration="5000", message_id="m", delivery_mode=2, headers={"a": 1})
    assert made.without("expiration") == properties(message_id="m", delivery_mode=2, headers={"a": 1})
    with pytest.raises(KeyError, match="expiry"):
        made.without("expiry")


def test_an_empty_header_table_is_not_a_missing_one() -> None:
    assert split(b"\x20\x00\x00\x00\x00\x00").headers == ()
    assert split(b"\x00\x00").headers is None


def test_text_spells_out_bytes_that_are_not_utf8() -> None:
    assert Properties(message_id=b"a\xff").text("message_id") == "a\\xff"
    assert Properties().text("message_id") is None


def test_our_lists_are_what_pika_would_send() -> None:
    ours = properties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"task": "a.b", "retries": 0, "root": None, "nested": {"a": [1, "x", True]}},
        delivery_mode=2,
        priority=0,
        correlation_id="c",
        reply_to="r",
        expiration="1000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="redrive",
        cluster_id="k",
    )
    theirs = pika.spec.BasicProperties(
        **{
            name: ours.text(name)
            for name in ("content_type", "content_encoding", "correlation_id", "reply_to")
        },
        **{name: ours.text(name) for name in ("expiration", "message_id", "type", "user_id", "app_id")},
        cluster_id="k",
        headers=ours.headers_dict(),
        delivery_mode=2,
        priority=0,
        timestamp=1_700_000_000,
    )
    assert ours.encode() == b"".join(theirs.encode())


@pytest.mark.parametrize("raw", [with_raw_header(b"T" + b"\xff" * 8), b"\xff\xff\x00garbage", b""])
def test_pika_keeps_the_bytes_of_any_property_list_once_installed(raw: bytes) -> None:
    before = pika.spec.props[60]
    try:
        install()
        install()
        payload = struct.pack(">HHQ", 60, 0, 3) + raw
        data = struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce"
        _, frame = pika.frame.decode_frame(data)
        assert frame.properties.raw == raw
        assert frame.marshal() == data
    finally:
        pika.spec.props[60] = before


def test_raw_properties_read_like_pikas() -> None:
    raw = RawProperties(properties(message_id="m", delivery_mode=2, headers={"a": 1.5}).encode())
    assert (raw.message_id, raw.delivery_mode, raw.headers, raw.reply_to) == ("m", 2, {"a": 1.5}, None)
    assert RawProperties(b"\xff").headers is None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = raw.nonsense
