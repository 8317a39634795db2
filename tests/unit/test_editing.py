"""What is too deep to be edited is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topology.catalogue import TOPOLOGY
from topology.editing import EditRefusedError, edit
from topology.json_patch import apply
from topology.messages import Message
from topology.wire import properties

RAW = properties(content_type="application/json").encode()


def edited(body: bytes, patch: list[Any]) -> None:
    edit(Message(RAW, body), lambda document: apply(document, patch), topology=TOPOLOGY, validate=False)


def test_a_letter_that_is_nested_deeply_is_refused_and_no_defect() -> None:
    body = b'{"n": 1, "a": %s}' % (b"[" * 700 + b"]" * 700)
    json.loads(body)
    with pytest.raises(EditRefusedError, match="nested too deeply"):
        edited(body, [{"op": "replace", "path": "/n", "value": 2}])


def test_a_patch_that_makes_it_deep_is_refused_and_no_defect() -> None:
    deeper = {"op": "copy", "from": "", "path": "/a"}
    with pytest.raises(EditRefusedError, match="nested too deeply"):
        edited(b'{"n": 1}', [deeper] * 700)
