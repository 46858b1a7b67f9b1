"""npm's client of registries against ours, and values that go from Python to Node and back."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.conformance.registry.test_serializers import AVRO, JSON, VALUE, order_message, pair
from tests.support.node_registry import NodeFailed, NoNode, node_registry
from tests.support.registry_http import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla import EmbeddedBroker
    from tests.support.node_registry import NodeRegistry

pytestmark = pytest.mark.long

PROTO = 'syntax = "proto3"; package registry; message Order { string shop = 1; }'
TEXTS = {"avro": AVRO, "json": JSON, "protobuf": PROTO}


@pytest.fixture(scope="module")
def node(broker: EmbeddedBroker) -> Iterator[NodeRegistry]:
    try:
        with node_registry(broker.registry_url) as found:
            yield found
    except NoNode as missing:
        pytest.skip(str(missing))


@pytest.fixture
def topic() -> str:
    return f"n{uuid4().hex[:8]}"


@pytest.mark.parametrize("kind", TEXTS)
def test_what_node_writes_python_reads(
    node: NodeRegistry, client: Any, topic: str, kind: str
) -> None:
    subject = f"{topic}-value"
    told = {"type": kind.upper(), "schema": TEXTS[kind], "subject": subject}
    number = node.call("register", **told)
    assert node.call("register", **told) == number
    assert node.call("latest", subject=subject) == number
    assert client.get_latest_version(subject).schema_id == number
    data = base64.b64decode(node.call("encode", id=number, value=VALUE))
    assert data[:5] == b"\0" + number.to_bytes(4)
    if kind == "protobuf":
        return  # this client does not write which message of the schema it is
    _, read, value = pair(kind, client, {})
    assert read(data, SerializationContext(topic, MessageField.VALUE)) == value


@pytest.mark.parametrize("kind", TEXTS)
def test_what_python_writes_node_reads(
    node: NodeRegistry, client: Any, topic: str, kind: str
) -> None:
    write, _, value = pair(kind, client, {})
    data = write(value, SerializationContext(topic, MessageField.VALUE))
    assert node.call("decode", bytes=base64.b64encode(data).decode()) == VALUE


def test_case_17_python_registers_base64_and_node_reads_it_as_text(
    node: NodeRegistry, broker: EmbeddedBroker, client: Any, topic: str
) -> None:
    order = order_message()
    context = SerializationContext(topic, MessageField.VALUE)
    conf = {"use.deprecated.format": False}
    data = ProtobufSerializer(order, client, conf)(order(shop="north"), context)
    path = f"/subjects/{topic}-value/versions/1"
    text = ask(broker.registry_url, "GET", path).body["schema"]
    assert "string shop = 1;" in text
    encoded = ask(broker.registry_url, "GET", f"{path}?format=serialized").body["schema"]
    assert b"registry" in base64.b64decode(encoded, validate=True)
    client.clear_caches()
    read = ProtobufDeserializer(order, conf, schema_registry_client=client)
    assert read(data, context) == order(shop="north")
    assert node.call("decode", bytes=base64.b64encode(data).decode()) == VALUE
    # Its text is the same schema.
    told = {"type": "PROTOBUF", "schema": text, "subject": f"{topic}-value"}
    assert node.call("register", **told) == int.from_bytes(data[1:5])


def test_a_change_that_does_not_fit_is_refused(node: NodeRegistry, topic: str) -> None:
    subject = f"{topic}-value"
    node.call("register", type="AVRO", schema=AVRO, subject=subject)
    other = json.loads(AVRO)
    other["fields"].append({"name": "amount", "type": "double"})
    with pytest.raises(NodeFailed, match="amount"):
        node.call("register", type="AVRO", schema=json.dumps(other), subject=subject)


def test_references(node: NodeRegistry, topic: str) -> None:
    node.call("register", type="AVRO", schema=AVRO, subject=f"{topic}-order")
    user = {"type": "record", "name": "User", "fields": [{"name": "last", "type": "Order"}]}
    number = node.call(
        "register",
        type="AVRO",
        schema=json.dumps(user),
        subject=f"{topic}-value",
        references=[{"name": "Order", "subject": f"{topic}-order", "version": 1}],
    )
    data = node.call("encode", id=number, value={"last": VALUE})
    assert node.call("decode", bytes=data) == {"last": VALUE}
