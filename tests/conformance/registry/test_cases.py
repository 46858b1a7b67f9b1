"""The registry judged by confluent-kafka's client: cases 1 to 6 and 10 to 16."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.error import SchemaRegistryError

from ottla.sync import Admin
from tests.support.registry_http import ask

if TYPE_CHECKING:
    from ottla import EmbeddedBroker


@pytest.fixture
def subject() -> str:
    return f"s{uuid4().hex[:8]}-value"


def record(*fields: tuple[Any, ...], name: str = "R") -> Any:
    told = [
        {"name": one[0], "type": one[1], **({"default": one[2]} if len(one) == 3 else {})}
        for one in fields
    ]
    return Schema(json.dumps({"type": "record", "name": name, "fields": told}), "AVRO")


def unique(kind: str = "AVRO") -> Any:
    """A schema that no other test has."""
    return Schema(record(("a", "int"), name=f"N{uuid4().hex}").schema_str, kind)


def refused(status: int, code: int) -> Any:
    return pytest.raises(SchemaRegistryError, match=rf".*HTTP status code {status}.*SR code {code}")


def test_case_1_register_and_get(client: Any, subject: str) -> None:
    schema = unique()
    number = client.register_schema(subject, schema)
    assert json.loads(client.get_schema(number).schema_str) == json.loads(schema.schema_str)
    for version in (1, "latest", -1):
        found = client.get_version(subject, version)
        assert (found.subject, found.version, found.schema_id) == (subject, 1, number)
    assert client.get_latest_version(subject).version == 1
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()


def test_case_1_the_same_schema_again_writes_nothing(
    client: Any, broker: EmbeddedBroker, subject: str
) -> None:
    number = client.register_schema(subject, unique_schema := unique())
    before = _records(broker)
    client.clear_caches()
    assert client.register_schema(subject, unique_schema) == number
    spaced = Schema(json.dumps(json.loads(unique_schema.schema_str), indent=4), "AVRO")
    assert client.register_schema(subject, spaced) == number
    assert _records(broker) == before
    full = client.register_schema_full_response(subject, spaced)
    assert (full.schema_id, full.guid is not None) == (number, True)


def test_case_2_one_id_in_two_subjects(client: Any, subject: str) -> None:
    schema = unique()
    number = client.register_schema(subject, schema)
    assert client.register_schema(f"other-{subject}", schema) == number
    assert sorted(client.get_subjects_by_schema_id(number)) == sorted([subject, f"other-{subject}"])
    versions = client.get_schema_versions(number)
    assert sorted(one.subject for one in versions) == sorted([subject, f"other-{subject}"])


def test_case_3_what_is_one_schema(client: Any, subject: str) -> None:
    number = client.register_schema(subject, Schema('{"type": "string"}', "AVRO"))
    assert client.register_schema(f"b{subject}", Schema(' "string" ', "AVRO")) == number
    assert client.get_schema(number).schema_str == '"string"'
    client.set_compatibility(f"c{subject}", "NONE")
    first, second = ("a", "int"), ("b", "int")
    one = client.register_schema(f"c{subject}", record(first, second))
    assert client.register_schema(f"c{subject}", record(second, first)) != one


def test_case_4_backward_names_the_field(client: Any, subject: str) -> None:
    client.register_schema(subject, record(("a", "int")))
    with refused(409, 409) as failure:
        client.register_schema(subject, record(("a", "int"), ("added", "string")))
    assert "added" in str(failure.value)
    client.register_schema(subject, record(("a", "int"), ("added", "string", "")))
    assert client.get_versions(subject) == [1, 2]


AVRO: dict[str, str] = {
    "base": record(("a", "int"), ("b", "int", 0)).schema_str,
    "backward": record(("a", "int"), ("b", "int", 0), ("c", "int", 0)).schema_str,
    "neither": record(("a", "string"), ("b", "int", 0)).schema_str,
}
JSON = {
    "base": '{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}',
    "backward": '{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"integer"}},'
    '"additionalProperties":false}',
    "forward": '{"type":"object","properties":{},"additionalProperties":false}',
    "full": '{"title":"t","type":"object","properties":{"a":{"type":"integer"}},'
    '"additionalProperties":false}',
    "neither": '{"type":"object","properties":{"a":{"type":"string"}},'
    '"additionalProperties":false}',
}
PROTO = {
    "base": 'syntax = "proto3"; message R { int32 a = 1; }',
    "full": 'syntax = "proto3"; message R { int32 a = 1; int32 b = 2; }',
    "neither": 'syntax = "proto3"; message R { string a = 1; }',
}
ACCEPTED = {
    ("AVRO", "BACKWARD"): AVRO["backward"],
    ("AVRO", "FORWARD"): AVRO["backward"],
    ("AVRO", "FULL"): AVRO["backward"],
    ("JSON", "BACKWARD"): JSON["backward"],
    ("JSON", "FORWARD"): JSON["forward"],
    ("JSON", "FULL"): JSON["full"],
    ("PROTOBUF", "BACKWARD"): PROTO["full"],
    ("PROTOBUF", "FORWARD"): PROTO["full"],
    ("PROTOBUF", "FULL"): PROTO["full"],
}
FORMATS: dict[str, dict[str, str]] = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTO}
LEVELS = ["BACKWARD", "FORWARD", "FULL"]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("level", [*LEVELS, *(f"{one}_TRANSITIVE" for one in LEVELS)])
def test_case_5_each_level_accepts_one_change_and_refuses_another(
    client: Any, subject: str, kind: str, level: str
) -> None:
    texts = FORMATS[kind]
    client.register_schema(subject, Schema(texts["base"], kind))
    client.set_compatibility(subject, level)
    accepted = Schema(ACCEPTED[kind, level.removesuffix("_TRANSITIVE")], kind)
    neither = Schema(texts["neither"], kind)
    assert client.test_compatibility(subject, accepted)
    assert not client.test_compatibility(subject, neither)
    with refused(409, 409):
        client.register_schema(subject, neither)
    client.register_schema(subject, accepted)
    assert client.get_versions(subject) == [1, 2]


@pytest.mark.parametrize("kind", FORMATS)
def test_case_5_none_accepts_everything(client: Any, subject: str, kind: str) -> None:
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    for text in (FORMATS[kind]["base"], FORMATS[kind]["neither"]):
        client.register_schema(subject, Schema(text, kind))
    with refused(422, 42203):
        client.set_compatibility(subject, "SOMETIMES")


@pytest.mark.parametrize(("level", "fits"), [("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)])
def test_case_6_transitive(client: Any, subject: str, level: str, *, fits: bool) -> None:
    """The third reads what the second wrote, and not what the first did."""
    client.set_compatibility(subject, "NONE")
    client.register_schema(subject, record(("a", "int")))
    client.register_schema(subject, record(("a", "int"), ("b", "int")))
    client.set_compatibility(subject, level)
    third = record(("b", "int"))
    if fits:
        client.register_schema(subject, third)
    else:
        with refused(409, 409):
            client.register_schema(subject, third)


def test_case_10_soft_delete_of_a_version(client: Any, subject: str) -> None:
    client.set_compatibility(subject, "NONE")
    first, second = unique(), unique()
    client.register_schema(subject, first)
    number = client.register_schema(subject, second)
    assert client.delete_version(subject, 2) == 2
    assert client.get_versions(subject) == [1]
    assert client.get_versions(subject, deleted=True) == [1, 2]
    client.clear_caches()
    assert client.get_latest_version(subject).version == 1
    assert client.get_schema(number).schema_str is not None
    with refused(404, 40402):
        client.get_version(subject, 2)
    assert client.get_version(subject, 2, deleted=True).schema_id == number


def test_case_11_hard_delete(client: Any, broker: EmbeddedBroker, subject: str) -> None:
    client.set_compatibility(subject, "NONE")
    client.register_schema(subject, unique())
    client.register_schema(subject, unique())
    url = broker.registry_url
    path = f"/subjects/{subject}"
    assert ask(url, "DELETE", f"{path}/versions/2?permanent=true").code == 40407
    assert ask(url, "DELETE", f"{path}?permanent=true").code == 40405
    client.delete_version(subject, 2)
    assert client.delete_version(subject, 2, permanent=True) == 2
    key = json.dumps(
        {"keytype": "SCHEMA", "subject": subject, "version": 2, "magic": 1}, separators=(",", ":")
    )
    assert (key.encode(), None) in _log(broker)
    client.register_schema(subject, unique())
    assert client.get_versions(subject) == [1, 3]
    assert client.delete_subject(subject) == [1, 3]
    assert client.delete_subject(subject, permanent=True) == [1, 3]
    with refused(404, 40401):
        client.get_versions(subject)


@pytest.mark.parametrize("kind", FORMATS)
def test_case_12_references(client: Any, subject: str, kind: str) -> None:
    base, user, name = {
        "AVRO": (
            record(("x", "int"), name="Base").schema_str,
            record(("base", "Base"), name="User").schema_str,
            "Base",
        ),
        "JSON": (
            '{"$id":"base.json","type":"integer"}',
            '{"type":"object","properties":{"base":{"$ref":"base.json"}}}',
            "base.json",
        ),
        "PROTOBUF": (
            'syntax = "proto3"; message Base { int32 x = 1; }',
            'syntax = "proto3"; import "base.proto"; message User { Base base = 1; }',
            "base.proto",
        ),
    }[kind]
    client.register_schema(f"base-{subject}", Schema(base, kind))
    reference = SchemaReference(name, f"base-{subject}", 1)
    with refused(422, 42201):
        client.register_schema(subject, Schema(user, kind))
    number = client.register_schema(subject, Schema(user, kind, [reference]))
    found = client.get_schema(number)
    assert found.references is not None
    assert [one.subject for one in found.references] == [f"base-{subject}"]
    assert client.get_referenced_by(f"base-{subject}", 1) == [number]
    with refused(422, 42206):
        client.delete_version(f"base-{subject}", 1)
    with refused(422, 42206):
        client.delete_subject(f"base-{subject}")


def test_case_13_references_that_cannot_be(client: Any, subject: str) -> None:
    user = record(("base", "Base")).schema_str
    itself = SchemaReference("Base", subject, 1)
    for references in ([itself], [SchemaReference(f"B{n}", "x", 1) for n in range(1001)]):
        with refused(422, 42201):
            client.register_schema(subject, Schema(user, "AVRO", references))


@pytest.mark.parametrize("text", ["{", '{"type":"nothing"}', "", '"a', "[" * 5000])
def test_what_is_no_schema_is_42201(broker: EmbeddedBroker, subject: str, text: str) -> None:
    answer = ask(broker.registry_url, "POST", f"/subjects/{subject}/versions", {"schema": text})
    assert (answer.status, answer.code) == (422, 42201)


def test_case_14_modes(client: Any, broker: EmbeddedBroker, subject: str) -> None:
    url = broker.registry_url
    known, other = unique(), unique()
    number = client.register_schema(subject, known)
    client.update_mode(subject, "READONLY")
    assert client.get_mode(subject) == "READONLY"
    client.clear_caches()
    assert client.register_schema(subject, known) == number
    with refused(422, 42205):
        client.register_schema(subject, other)
    with refused(422, 42205):
        client.delete_version(subject, 1)
    client.update_mode(subject, "READWRITE")
    client.update_global_mode("READONLY_OVERRIDE")
    try:
        with refused(422, 42205):
            client.register_schema(subject, other)
    finally:
        client.update_global_mode("READWRITE")
    assert client.delete_mode(subject) == "READWRITE"
    with refused(404, 40409):
        client.get_mode(subject)
    with refused(422, 42205):
        client.update_mode(subject, "IMPORT")
    with refused(422, 42204):
        client.update_mode(subject, "SLEEPING")
    fresh = f"import-{subject}"
    client.update_mode(fresh, "IMPORT")
    body = {"schema": unique().schema_str, "id": 1_000_000 + number, "version": 7}
    answer = ask(url, "POST", f"/subjects/{fresh}/versions", body)
    assert (answer.body["id"], answer.body["version"]) == (1_000_000 + number, 7)
    client.update_mode(fresh, "READWRITE")


def test_case_15_contexts(client: Any, broker: EmbeddedBroker) -> None:
    one, two = f".a{uuid4().hex[:6]}", f".b{uuid4().hex[:6]}"
    assert client.register_schema(f":{one}:x", unique()) == 1
    assert client.register_schema(f":{two}:x", unique()) == 1
    assert {one, two, "."} <= set(ask(broker.registry_url, "GET", "/contexts").body)
    assert client.get_version(f":{two}:x", 1).schema_id == 1
    assert client.get_subjects(subject_prefix=f":{one}:") == [f":{one}:x"]


def test_case_16_normalize_finds_what_differs_in_order_alone(
    client: Any, broker: EmbeddedBroker, subject: str
) -> None:
    head = f'syntax = "proto3"; package p{uuid4().hex};'
    imports = ('import "google/protobuf/any.proto";', 'import "google/protobuf/duration.proto";')
    options = ('option java_package = "a";', "option cc_enable_arenas = true;")
    body = "message R { google.protobuf.Any a = 1; google.protobuf.Duration b = 2; }"
    one = Schema(head + "".join(imports) + "".join(options) + body, "PROTOBUF")
    other = Schema(head + "".join(imports[::-1]) + "".join(options[::-1]) + body, "PROTOBUF")
    client.set_compatibility(subject, "NONE")
    number = client.register_schema(subject, one, normalize_schemas=True)
    client.clear_caches()
    assert client.lookup_schema(subject, other, normalize_schemas=True).schema_id == number
    assert client.register_schema(subject, other, normalize_schemas=True) == number
    client.clear_caches()
    with refused(404, 40403):
        client.lookup_schema(subject, other)
    assert client.register_schema(subject, other) != number


def test_by_guid(client: Any, broker: EmbeddedBroker, subject: str) -> None:
    full = client.register_schema_full_response(subject, unique())
    assert full.guid is not None
    assert client.get_schema_by_guid(full.guid).schema_str == full.schema.schema_str
    ids = ask(broker.registry_url, "GET", f"/schemas/guids/{full.guid}/ids").body
    assert ids == [{"context": ".", "id": full.schema_id}]


def test_look_up(client: Any, subject: str) -> None:
    schema = unique()
    with refused(404, 40401):
        client.lookup_schema(subject, schema)
    number = client.register_schema(subject, schema)
    client.clear_caches()
    found = client.lookup_schema(subject, schema)
    assert (found.schema_id, found.version, found.subject) == (number, 1, subject)
    with refused(404, 40403):
        client.lookup_schema(subject, unique())


def test_the_topic_is_closed_to_clients(broker: EmbeddedBroker, client: Any) -> None:
    from ottla.errors import KafkaError
    from ottla.sync import Producer

    client.register_schema("closed-value", unique())
    with Producer(broker.bootstrap) as producer, pytest.raises(KafkaError):
        producer.send("_schemas", b"forged")
    with Admin(broker.bootstrap) as admin, pytest.raises(KafkaError):
        admin.delete_topic("_schemas")


def test_clients_find_the_registry(broker: EmbeddedBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        assert admin.registry_url() == broker.registry_url


def _log(broker: EmbeddedBroker) -> list[tuple[bytes | None, bytes | None]]:
    """As another client reads it."""
    left = _records(broker)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    try:
        consumer.assign([TopicPartition("_schemas", 0, 0)])
        found: list[tuple[bytes | None, bytes | None]] = []
        while len(found) < left:
            found += [(one.key(), one.value()) for one in consumer.consume(left, 1.0)]
        return found
    finally:
        consumer.close()


def _records(broker: EmbeddedBroker) -> int:
    with Admin(broker.bootstrap) as admin:
        (end,) = admin.list_offsets(["_schemas"]).values()
    return end.offset
