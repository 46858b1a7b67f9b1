"""The bytes of `_schemas`: as we write them, and as others have written them."""

from __future__ import annotations

import json

import pytest

from ottla.registry.records import (
    ConfigRecord,
    ModeRecord,
    Noop,
    SchemaRecord,
    SchemaTombstone,
    SubjectDeleted,
    decode,
    encode,
)
from ottla.registry.requests import Deleted, DeleteVersion, Done, SetConfig
from ottla.schemas.model import Kind, Reference, Schema
from tests.support.schema_registry import Driver, avro, content

PROTO = Schema(
    Kind.PROTOBUF,
    'syntax = "proto3";',
    (Reference("o.proto", "other", 2),),
    {"properties": {"owner": "ä"}},
    {"domainRules": []},
)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            SchemaRecord("a-value", 1, 7, avro('"int"'), guid="g"),
            '{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}',
            '{"subject":"a-value","version":1,"id":7,"schema":"\\"int\\"","deleted":false,"guid":"g"}',
        ),
        (
            SchemaRecord("a", 2, 8, PROTO, deleted=True, guid="g", highest=9),
            '{"keytype":"SCHEMA","subject":"a","version":2,"magic":1}',
            (
                '{"subject":"a","version":2,"id":8,"schemaType":"PROTOBUF",'
                '"references":[{"name":"o.proto","subject":"other","version":2}],'
                '"metadata":{"properties":{"owner":"ä"}},"ruleSet":{"domainRules":[]},'
                '"schema":"syntax = \\"proto3\\";","deleted":true,"guid":"g","highest":9}'
            ),
        ),
        (
            SchemaTombstone("a", 1),
            '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            None,
        ),
        (
            SubjectDeleted("a", 3),
            '{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}',
            '{"subject":"a","version":3}',
        ),
        (
            ConfigRecord(None, {"compatibilityLevel": "FULL"}),
            '{"keytype":"CONFIG","subject":null,"magic":0}',
            '{"compatibilityLevel":"FULL"}',
        ),
        (ConfigRecord("a", None), '{"keytype":"CONFIG","subject":"a","magic":0}', None),
        (
            ModeRecord("a", "READONLY"),
            '{"keytype":"MODE","subject":"a","magic":0}',
            '{"mode":"READONLY"}',
        ),
        (Noop(), '{"keytype":"NOOP","magic":0}', None),
        (Noop({".": 9}), '{"keytype":"NOOP","magic":0}', '{"highestIds":{".":9}}'),
    ],
)
def test_case_20_records_are_these_bytes(record: SchemaRecord, key: str, value: str | None) -> None:
    written = encode(record)
    assert written == (key.encode(), None if value is None else value.encode())
    assert decode(*written) == record


def test_case_20_a_log_of_confluent() -> None:
    log = _lines(
        """
        {"keytype":"NOOP","magic":0}
        null
        {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
        {"subject":"orders-value","version":1,"id":1,"schema":"\\"int\\"","deleted":false}
        {"keytype":"SCHEMA","subject":"orders-value","version":2,"magic":1}
        {"subject":"orders-value","version":2,"id":2,"md5":"x","schema":"\\"long\\"","deleted":false}
        {"keytype":"SCHEMA","subject":"gone-value","version":1,"magic":1}
        {"subject":"gone-value","version":1,"id":3,"schema":"\\"bytes\\"","deleted":false}
        {"keytype":"CONFIG","subject":null,"magic":0}
        {"compatibilityLevel":"FULL"}
        {"keytype":"CONFIG","subject":"orders-value","magic":0}
        {"subject":"orders-value","compatibilityLevel":"NONE","alias":"x"}
        {"keytype":"MODE","subject":"orders-value","magic":0}
        {"subject":"orders-value","mode":"READONLY"}
        {"keytype":"DELETE_SUBJECT","subject":"gone-value","magic":0}
        {"subject":"gone-value","version":1}
        {"keytype":"SCHEMA","subject":"gone-value","version":1,"magic":1}
        null
        {"keytype":"SCHEMA","subject":"p-value","version":1,"magic":1}
        {"subject":"p-value","version":1,"id":4,"schemaType":"PROTOBUF","schema":"x","deleted":true}
        """
    )
    registry = Driver([*log, (b"\xff garbage", b"\x00"), (b'{"keytype":"CLUSTER"}', b"{}")])
    state = registry.state
    assert [(one.version, one.id) for one in state.versions("orders-value")] == [(1, 1), (2, 2)]
    assert not state.versions("gone-value", deleted=True)
    assert state.highest("gone-value") == 1
    assert state.configs[None] == {"compatibilityLevel": "FULL"}
    assert state.configs["orders-value"] == {"compatibilityLevel": "NONE", "alias": "x"}
    assert state.modes == {"orders-value": "READONLY"}
    (deleted,) = state.versions("p-value", deleted=True)
    assert (deleted.deleted, deleted.schema.kind) == (True, Kind.PROTOBUF)
    assert registry.machine.passed_over == 2
    assert registry.register("new", '"float"').id == 5


OLD_KEY = b'{"keytype": "SCHEMA", "magic": 1, "subject": "a", "version": 1}'
OLD_VALUE = b'{"deleted": false, "id": 1, "schema": "\\"int\\"", "subject": "a", "version": 1}'


def test_case_20_keys_of_karapace_in_another_order_are_ended_when_they_are_replaced() -> None:
    registry = Driver([(OLD_KEY, OLD_VALUE)])
    (found,) = registry.state.versions("a")
    assert (found.version, found.id) == (1, 1)
    registry.ask(DeleteVersion("a", 1), Deleted)
    assert registry.log[1] == (OLD_KEY, None)
    assert registry.log[2][0] == b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    assert content(registry.replayed().state) == content(registry.state)
    registry.ask(DeleteVersion("a", 1, permanent=True), Deleted)
    for log in (registry.log, registry.compacted()):
        machine = registry.replayed(log)
        assert content(machine.state) == content(registry.state)
        assert not machine.state.versions("a", deleted=True)
        assert not machine.state.foreign_keys


def test_case_20_settings_of_karapace() -> None:
    key = b'{"subject": "", "magic": 0, "keytype": "CONFIG"}'
    registry = Driver([(key, b'{"compatibilityLevel": "FORWARD"}')])
    assert registry.state.configs == {None: {"compatibilityLevel": "FORWARD"}}
    registry.ask(SetConfig(None, {"compatibilityLevel": "FULL"}), Done)
    assert registry.log[1] == (key, None)
    assert content(registry.replayed(registry.compacted()).state) == content(registry.state)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"[]", b"{}"),
        (b"null", None),
        (b'{"keytype":"SCHEMA","subject":"a","magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":1,"version":1,"magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":-1,"magic":1}', None),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"\x80"),
        (b'{"keytype":"MODE","subject":"a","magic":0}', b'{"mode":7}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"version":"x"}'),
        (b"[" * 100_000, None),
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            b'{"subject":"a","version":1,"id":99999999999,"schema":"x"}',
        ),
    ],
)
def test_case_20_garbage_is_passed_over(key: bytes, value: bytes | None) -> None:
    assert decode(key, value) is None


def test_half_a_character_is_written_as_json_can() -> None:
    key, value = encode(SchemaRecord("a", 1, 1, avro('"\ud800"')))
    assert value is not None
    assert decode(key, json.dumps(json.loads(value)).encode()) == decode(key, value)


def _lines(text: str) -> list[tuple[bytes, bytes | None]]:
    lines = [line.strip().encode() for line in text.strip().splitlines()]
    return [
        (key, None if value == b"null" else value)
        for key, value in zip(lines[::2], lines[1::2], strict=True)
    ]
