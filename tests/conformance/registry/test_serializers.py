"""confluent-kafka's serialisers against the registry: case 18."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "shop", "type": "string"}]}
)
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"shop": {"type": "string"}}})
VALUE = {"shop": "north"}


def order_message() -> Any:
    """message Order { string shop = 1; }"""
    file = descriptor_pb2.FileDescriptorProto(
        name="registry_order.proto", package="registry", syntax="proto3"
    )
    field = file.message_type.add(name="Order").field.add(name="shop", number=1)
    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName(file.name)
    return message_factory.GetMessageClass(found.message_types_by_name["Order"])


def pair(kind: str, client: Any, conf: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Serialiser, deserialiser, and a value."""
    if kind == "avro":
        return AvroSerializer(client, AVRO, conf=conf), AvroDeserializer(client), VALUE
    if kind == "json":
        serializer = JSONSerializer(JSON, client, conf=conf)
        return serializer, JSONDeserializer(JSON, schema_registry_client=client), VALUE
    conf = {**conf, "use.deprecated.format": False}
    order = order_message()
    reader = ProtobufDeserializer(
        order, {"use.deprecated.format": False}, schema_registry_client=client
    )
    return ProtobufSerializer(order, client, conf), reader, order(shop="north")


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("in_headers", [False, True])
def test_case_18_serialisers_write_and_read(client: Any, kind: str, *, in_headers: bool) -> None:
    conf = {"schema.id.serializer": header_schema_id_serializer} if in_headers else {}
    write, read, value = pair(kind, client, conf)
    headers: list[Any] = []
    context = SerializationContext(f"t{uuid4().hex[:8]}", MessageField.VALUE, headers)
    data = write(value, context)
    if in_headers:
        ((name, told),) = headers
        assert (name, told[0], len(told) >= 17) == ("__value_schema_id", 1, True)
    else:
        assert data[0] == 0
    client.clear_caches()
    assert read(data, context) == value
