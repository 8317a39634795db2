"""Definitions files of every version and in every state: values, findings, or one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.lint.definitions import Binding, Exchange, Parameter, Policy, Queue, User, VirtualHost
from topology.lint.document import MAX_BYTES, NotDefinitionsError
from topology.lint.finding import Finding
from topology.lint.read import read, read_with_places

QUEUE = {"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
EXCHANGE = {
    "name": "dlx",
    "vhost": "/",
    "type": "direct",
    "durable": True,
    "auto_delete": False,
    "internal": False,
    "arguments": {},
}
BINDING = {
    "source": "dlx",
    "vhost": "/",
    "destination": "orders",
    "destination_type": "queue",
    "routing_key": "k",
    "arguments": {},
}
POLICY = {"vhost": "/", "name": "ha", "pattern": ".*", "definition": {"max-length": 5}}


def as_bytes(**tree: Any) -> bytes:
    return json.dumps(tree).encode()


def problems(content: bytes) -> list[tuple[str, str, str]]:
    return [(found.code, found.entity, found.message) for found in read(content, "file.json").problems]


def refusal(content: bytes) -> str:
    with pytest.raises(NotDefinitionsError) as caught:
        read(content, "file.json")
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("file.json: ")
    return text.removeprefix("file.json: ")


def test_an_export_of_a_whole_broker_is_read() -> None:
    found = read(
        as_bytes(
            rabbit_version="4.3.6",
            rabbitmq_version="4.3.6",
            users=[{"name": "admin", "password_hash": "x", "tags": ["administrator"], "limits": {}}],
            vhosts=[{"name": "/", "metadata": {"default_queue_type": "quorum", "tags": []}, "limits": {}}],
            permissions=[{"user": "admin", "vhost": "/", "configure": "", "write": "", "read": ""}],
            topic_permissions=[],
            global_parameters=[{"name": "cluster_tags", "value": []}],
            parameters=[{"component": "shovel", "vhost": "/", "name": "s", "value": {"src-uri": "amqp://"}}],
            policies=[{**POLICY, "apply-to": "queues", "priority": 3}],
            queues=[{**QUEUE, "type": "quorum", "arguments": {"x-queue-type": "quorum"}}],
            exchanges=[{**EXCHANGE, "internal": True}],
            bindings=[BINDING],
        ),
        "file.json",
    )
    assert found.rabbitmq_version == "4.3.6"
    assert found.origin == "file"
    assert found.vhosts == (VirtualHost("/", "quorum"),)
    assert found.users == (User("admin", ("administrator",)),)
    assert found.queues == (Queue("/", "orders", arguments={"x-queue-type": "quorum"}),)
    assert found.exchanges == (Exchange("/", "dlx", internal=True),)
    assert found.bindings == (Binding("/", "dlx", "orders", "queue", "k"),)
    assert found.policies == (Policy("/", "ha", ".*", {"max-length": 5}, "queues", 3),)
    assert found.parameters == (Parameter("/", "shovel", "s", {"src-uri": "amqp://"}),)
    assert found.problems == ()


def test_an_export_of_one_virtual_host_needs_no_vhost_fields() -> None:
    bare = {name: value for name, value in QUEUE.items() if name != "vhost"}
    found = read(
        as_bytes(
            rabbitmq_definition_format="single_virtual_host",
            original_vhost_name="shop",
            metadata={"default_queue_type": "classic"},
            queues=[bare],
        ),
        "file.json",
    )
    assert found.vhosts == (VirtualHost("shop", "classic"),)
    assert [(queue.vhost, queue.name) for queue in found.queues] == [("shop", "orders")]
    assert found.problems == ()


def test_an_export_of_one_virtual_host_of_3_10_does_not_say_which() -> None:
    bare = {name: value for name, value in QUEUE.items() if name != "vhost"}
    found = read(as_bytes(rabbit_version="3.10.8", queues=[bare], bindings=[], policies=[]), "file.json")
    assert found.vhosts == (VirtualHost("/"),)
    assert found.problems == ()


def test_operator_policies_are_read_from_the_parameters() -> None:
    value = {"pattern": "^a", "definition": {"max-length": 9}, "apply-to": "queues", "priority": 2}
    parameter = {"vhost": "/", "component": "operator_policy", "name": "cap", "value": value}
    found = read(as_bytes(vhosts=[{"name": "/"}], parameters=[parameter]), "file.json")
    assert found.policies == (Policy("/", "cap", "^a", {"max-length": 9}, "queues", 2, operator=True),)
    assert found.parameters == ()


def test_tags_of_old_exports_and_a_password_in_the_clear() -> None:
    user = {"name": "bob", "password": "hunter2", "tags": "administrator, management"}
    found = read(as_bytes(users=[user]), "file.json")
    assert found.users == (User("bob", ("administrator", "management"), plaintext_password=True),)
    assert "hunter2" not in repr(found)


def test_an_empty_list_is_an_empty_table_of_arguments() -> None:
    assert problems(as_bytes(vhosts=[], queues=[{**QUEUE, "arguments": []}])) == []


def test_a_byte_order_mark_is_skipped() -> None:
    assert [queue.name for queue in read(b"\xef\xbb\xbf" + as_bytes(queues=[QUEUE]), "x").queues] == [
        "orders"
    ]


def test_a_trailing_comma_is_an_error_that_says_where_and_the_rest_is_linted() -> None:
    text = json.dumps({"vhosts": [], "queues": [QUEUE]}, indent=1).replace("}\n ]", "},\n ]")
    found = read(text.encode(), "file.json")
    assert [queue.name for queue in found.queues] == ["orders"]
    (problem,) = found.problems
    assert (problem.code, problem.severity, problem.versions) == ("JSON-INVALID", "error", "3.13+")
    line = text[: text.index("},\n ]")].count("\n") + 1
    assert f"line {line} column 4" in problem.message


def test_a_comma_before_a_bracket_inside_a_string_stays() -> None:
    found = read(
        b'{"queues":[],"policies":[{"vhost":"/","name":"a,]","pattern":",}","definition":{"a":1}},]}', "x"
    )
    assert [(policy.name, policy.pattern) for policy in found.policies] == [("a,]", ",}")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        ('{"queues": []}'.encode("utf-16"), "UTF-16"),
        ('{"queues": []}'.encode("utf-16-le"), "NUL"),
        ('{"queues": []}'.encode("utf-32"), "UTF-32"),
        (b"\x00" * 64, "NUL"),
        (b'{"queues": [{"name": "a"}, {"na', "cut off"),
        (b'{"queues": [{"name": "a"},', "line 1 column 27: ends in the middle"),
        (b'{"queues": [}', "not JSON: line 1 column 13"),
        (
            b'{\n "queues": []\n "users": []}',
            "not JSON: line 3 column 2: expecting ',' delimiter, found '\"users\"",
        ),
        (b"version: '3'\nservices:\n  rabbitmq:\n", "not JSON: line 1 column 1"),
        (b"// a comment\n{}", "not JSON: line 1 column 1"),
        (b"<html></html>", "not JSON"),
        (b'{"queues": [{"name": NaN}]}', "not JSON: the number NaN"),
        (b'{"queues": [{"name": 1e999}]}', "a number out of range"),
        (b'{"queues": [' + b"9" * 5000 + b"]}", "Exceeds the limit"),
        (b'{"queues": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"queues": ' + b"[" * 100_000, "nested too deeply"),
        (b"[1, 2, 3]", "a JSON list, where definitions are an object"),
        (b"5", "a JSON number"),
        (b'"queues"', "a JSON string"),
        (b"null", "a JSON null"),
        (json.dumps([QUEUE]).encode(), "GET /api/definitions"),
        (b"{}", "no RabbitMQ definitions"),
        (b'{"name": "web", "version": "1", "dependencies": {}}', "'name', 'version', 'dependencies'"),
        (b'{"openapi": "3.1.0", "info": {}, "paths": {}}', "no RabbitMQ definitions"),
        (b'{"queues": {}}', "queues is a JSON object, not a list"),
        (b'{"parameters": {"a": {}}, "resources": []}', "parameters is a JSON object, not a list"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_definitions_file_is_refused_in_one_line(content: bytes, said: str) -> None:
    assert said in refusal(content)


def test_a_file_over_the_limit_is_refused_before_it_is_parsed() -> None:
    assert "larger than 32 MiB" in refusal(b" " * (MAX_BYTES + 1))


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"queues": [], "exchanges": {}}, ("FIELD-TYPE", "file", "exchanges is an object, not a list")),
        ({"queues": [], "bindings": None}, ("FIELD-TYPE", "file", "bindings is null, not a list")),
        ({"queues": ["orders"]}, ("FIELD-TYPE", "queues[0]", "is the string 'orders', not an object")),
        ({"queues": [{**QUEUE, "name": 5}]}, ("FIELD-TYPE", "queues[0]", "name is the number 5")),
        ({"queues": [{**QUEUE, "name": None}]}, ("FIELD-TYPE", "queues[0]", "name is null")),
        (
            {"queues": [{"vhost": "/", "durable": True, "auto_delete": False}]},
            ("FIELD-MISSING", "queues[0]", "no name"),
        ),
        ({"queues": [{**QUEUE, "vhost": 5}]}, ("FIELD-TYPE", "queue 'orders'", "vhost is the number 5")),
        (
            {"queues": [{**QUEUE, "durable": "yes"}]},
            ("FIELD-TYPE", "queue 'orders'", "durable is the string 'yes'"),
        ),
        (
            {"queues": [{**QUEUE, "arguments": "x"}]},
            ("FIELD-TYPE", "queue 'orders'", "arguments is the string"),
        ),
        (
            {"queues": [{**QUEUE, "arguments": {"x-a": None}}]},
            ("FIELD-TYPE", "queue 'orders'", "arguments.x-a is null"),
        ),
        ({"exchanges": [{**EXCHANGE, "type": 1}]}, ("FIELD-TYPE", "exchange 'dlx'", "type is the number 1")),
        (
            {"bindings": [{**BINDING, "destination_type": "q"}]},
            ("FIELD-TYPE", "binding 'dlx' -> 'orders' ('k')", "not 'queue' or 'exchange'"),
        ),
        (
            {"policies": [{**POLICY, "priority": "1"}]},
            ("FIELD-TYPE", "policy 'ha'", "priority is the string '1'"),
        ),
        (
            {"policies": [{**POLICY, "definition": {}}]},
            ("FIELD-MISSING", "policy 'ha'", "definition is empty"),
        ),
        ({"users": [{"name": "bob"}]}, ("FIELD-MISSING", "user 'bob'", "has no tags")),
        (
            {"policies": [{**POLICY, "apply_to": "queues"}]},
            ("FIELD-UNKNOWN", "policy 'ha'", "'apply-to' is probably"),
        ),
        (
            {"queues": [{**{k: v for k, v in QUEUE.items() if k != "arguments"}, "argument": {}}]},
            ("FIELD-UNKNOWN", "queue 'orders'", "'arguments' is probably meant"),
        ),
        ({"queues": [], "binding": []}, ("FIELD-UNKNOWN", "file", "'bindings' is probably meant")),
        (
            {"queues": [QUEUE, {**QUEUE, "durable": False}]},
            ("DUPLICATE-NAME", "queue 'orders'", "keeps the first"),
        ),
        (
            {"policies": [POLICY, {**POLICY, "pattern": "x"}]},
            ("DUPLICATE-NAME", "policy 'ha'", "keeps the last"),
        ),
    ],
)
def test_what_rabbitmq_refuses_or_ignores_in_a_file_is_a_finding(
    tree: dict[str, Any], problem: tuple[str, str, str]
) -> None:
    found = problems(as_bytes(**{"vhosts": [{"name": "/"}], **tree}))
    assert [(code, entity) for code, entity, _ in found] == [problem[:2]]
    assert problem[2] in found[0][2]


def test_of_two_queues_of_a_name_the_first_counts_and_of_two_policies_the_last() -> None:
    content = as_bytes(
        queues=[QUEUE, {**QUEUE, "durable": False}], policies=[POLICY, {**POLICY, "pattern": "later"}]
    )
    found = read(content, "x")
    assert [queue.durable for queue in found.queues] == [True]
    assert [policy.pattern for policy in found.policies] == ["later"]


def test_the_same_name_in_two_virtual_hosts_is_no_duplicate() -> None:
    assert problems(as_bytes(vhosts=[], queues=[QUEUE, {**QUEUE, "vhost": "b"}])) == []


@pytest.mark.parametrize("field", ["durable", "auto_delete"])
def test_a_missing_flag_is_refused_by_3_10_alone(field: str) -> None:
    queue = {name: value for name, value in QUEUE.items() if name != field}
    (problem,) = read(as_bytes(vhosts=[], queues=[queue]), "x").problems
    assert (problem.code, problem.severity, problem.versions) == ("FIELD-MISSING", "error", "<4.0")


def test_a_whole_export_without_vhosts_in_its_entities_is_refused() -> None:
    bare = {name: value for name, value in BINDING.items() if name != "vhost"}
    (problem,) = read(as_bytes(vhosts=[{"name": "/"}], queues=[QUEUE], bindings=[bare] * 3), "x").problems
    assert (problem.code, problem.versions) == ("NO-VHOST-FIELD", "3.13+")
    assert "3 bindings without a vhost" in problem.message


def test_of_a_key_that_stands_twice_the_first_value_counts() -> None:
    found = read(b'{"vhosts": [], "queues": [], "vhosts": [{"name": "b"}]}', "x")
    assert found.vhosts == ()
    assert [(problem.code, problem.severity) for problem in found.problems] == [
        ("JSON-DUPLICATE-KEY", "warning")
    ]


@pytest.mark.parametrize(
    "content", [b'{"queues": [], "users": [{"name": "\\ud800", "tags": []}]}', b'{"queues": [], "x": "\xff"}']
)
def test_text_that_is_no_unicode_is_an_error_and_reading_goes_on(content: bytes) -> None:
    found = read(content, "x")
    assert [problem.code for problem in found.problems] == ["JSON-INVALID"]
    repr(found).encode()


def test_arguments_nested_without_end_are_complained_of_and_left_out() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    found = read(as_bytes(vhosts=[], queues=[{**QUEUE, "arguments": {"x-a": deep, "x-b": 1}}]), "x")
    assert [queue.arguments for queue in found.queues] == [{"x-b": 1}]
    assert [problem.code for problem in found.problems] == ["FIELD-TYPE"]


def test_unknown_fields_that_look_like_no_other_are_let_be() -> None:
    queue = {**QUEUE, "policy": "ha", "messages": 0, "state": "running", "effective_policy_definition": {}}
    assert problems(as_bytes(vhosts=[], queues=[queue], product_name="RabbitMQ", explanation="…")) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*QUEUE, *EXCHANGE, *BINDING, *POLICY, "tags", "password", "component", "value"])
ENTRY = st.dictionaries(FIELDS, JSON, max_size=6) | JSON
CATEGORY = st.sampled_from(
    ["queues", "exchanges", "bindings", "policies", "parameters", "users", "vhosts", "permissions"]
)


@given(st.dictionaries(CATEGORY, st.lists(ENTRY, max_size=4) | JSON, min_size=1))
def test_no_json_object_makes_reading_fail_otherwise(tree: dict[str, Any]) -> None:
    content = json.dumps(tree).encode()
    try:
        definitions, places = read_with_places(content, "x")
    except NotDefinitionsError:
        return
    for problem in definitions.problems:
        places.of(problem)


@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ud8\n 1', max_size=60).map(str.encode))
def test_no_bytes_make_reading_fail_otherwise(content: bytes) -> None:
    try:
        read(content, "x")
    except NotDefinitionsError as error:
        text = str(error)
    else:
        text = ""
    assert "\n" not in text


def test_an_entity_is_found_in_the_file_where_it_begins() -> None:
    text = json.dumps(
        {"vhosts": [{"name": "/"}], "queues": [{**QUEUE, "name": "a"}, QUEUE], "bindings": [BINDING]},
        indent=2,
    )
    _, places = read_with_places(text.encode(), "x")

    def line(vhost: str, entity: str) -> int | None:
        place = places.of(Finding("X", "error", vhost, entity, (), "", "", ""))
        return place.line if place else None

    lines = text.splitlines()
    begin = lines.index('      "name": "orders",')
    assert line("/", "queue 'orders'") == begin
    assert lines[begin - 1] == "    {"
    assert line("/", "binding 'dlx' -> 'orders' ('k')") == lines.index('      "source": "dlx",')
    assert line("", "vhost '/'") == lines.index('      "name": "/"')
    assert line("other", "queue 'orders'") is None
    assert line("", "file") is None


def test_places_survive_a_trailing_comma_and_a_single_line() -> None:
    text = '{"queues": [{"vhost": "/", "name": "é", "durable": true, "auto_delete": false},]}'
    _, places = read_with_places(text.encode(), "x")
    place = places.of(Finding("X", "error", "/", "queue 'é'", (), "", "", ""))
    assert place is not None
    assert (place.line, place.column) == (1, 13)
