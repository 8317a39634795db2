"""The property list of a message, byte for byte: what the other packages use of the `wire_…` modules."""

from topology.wire_encode import NotEncodable, encode_value
from topology.wire_pika import RawProperties, install
from topology.wire_properties import Properties, properties, split
from topology.wire_readable import readable
from topology.wire_values import (
    HeaderEntry,
    MalformedProperties,
    OddText,
    OddTimestamp,
    Pairs,
    Unparsed,
    decode_value,
)

__all__ = [
    "HeaderEntry",
    "MalformedProperties",
    "NotEncodable",
    "OddText",
    "OddTimestamp",
    "Pairs",
    "Properties",
    "RawProperties",
    "Unparsed",
    "decode_value",
    "encode_value",
    "install",
    "properties",
    "readable",
    "split",
]
