"""Java's Avro, which comes with Spark, judges our verdicts on Avro schemas."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.schemas.avro import parse
from ottla.schemas.avro_compat import differences
from ottla.schemas.model import InvalidSchema
from tests.support.avro_pairs import pair

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIRS = 2_000
QUICK_START = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    from ottla.spark.java import find_java

    jars = Path(pyspark.__file__).parent / "jars"
    [py4j] = jars.glob("py4j-*.jar")
    port = launch_gateway(
        jarpath=str(py4j),
        classpath=str(jars / "*"),
        javaopts=QUICK_START,
        java_path=str(find_java() / "bin" / "java"),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


class Java:
    def __init__(self, jvm: Any) -> None:
        package = jvm.org.apache.avro
        self._parser = getattr(package, "Schema$Parser")
        self._check = package.SchemaCompatibility.checkReaderWriterCompatibility

    def parse(self, text: str) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return self._parser().parse(text)
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())

    def can_read(self, reader: Any, writer: Any) -> bool:
        from py4j.protocol import Py4JJavaError

        try:
            return str(self._check(reader, writer).getType()) == "COMPATIBLE"
        except Py4JJavaError:  # a field that could be several of the writer's
            return False


def test_case_7_java_has_the_same_verdict_on_random_pairs(jvm: Any) -> None:
    java = Java(jvm)
    verdicts = []
    for seed in range(PAIRS):
        texts = [json.dumps(schema) for schema in pair(random.Random(seed))]
        schemas = [java.parse(text) for text in texts]
        assert not any(isinstance(schema, str) for schema in schemas), (texts, schemas)
        reader, writer = (parse(text, {}) for text in texts)
        found = differences(reader.tree, writer.tree)
        verdicts.append(java.can_read(*schemas))
        assert (not found) is verdicts[-1], (texts, found)
        # Both forms mean the same schema to Java.
        for schema, parsed in zip(schemas, (reader, writer), strict=True):
            assert java.parse(parsed.canonical).equals(schema), parsed.canonical
            assert java.parse(parsed.normalized).equals(schema), parsed.normalized
    assert PAIRS // 5 < sum(verdicts) < PAIRS * 4 // 5  # both verdicts are tried


@pytest.mark.parametrize(
    "text",
    [
        '"nothing"',
        '["int","int"]',
        '["int",["null"]]',
        '{"type":"array"}',
        '{"type":"record","name":"R"}',
        '{"type":"record","name":"1","fields":[]}',
        '{"type":"record","name":"int","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"x"}]}',
        '{"type":"record","name":"R","fields":[],"aliases":["1"]}',
        '{"type":{"type":"string"}}',
        '{"type":"enum","name":"E","symbols":["a","a"]}',
        '{"type":"enum","name":"E","symbols":["a"],"default":"b"}',
    ],
)
def test_what_java_refuses_is_refused(jvm: Any, text: str) -> None:
    assert isinstance(Java(jvm).parse(text), str)
    with pytest.raises(InvalidSchema):
        parse(text, {})


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"type":"record","name":"ä","namespace":"","fields":[]}',
        '{"type":"record","name":"a.b.C","namespace":"x","fields":[]}',
        '{"type":"error","name":"R","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"ö","type":"R"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"R"}}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"IGNORE"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":["1","b.c"]}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"float","default":"NaN"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"double"},"default":1}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":1}]}',
        (
            '{"type":"record","name":"a.R","fields":[{"name":"a","type":{"type":"fixed","name":"F",'
            '"namespace":"","size":0}},{"name":"b","type":"F"}]}'
        ),
        '{"type":"array","items":"int","x":1,"default":[]}',
        '{"type":"string","logicalType":"unheard-of"}',
    ],
)
def test_what_java_accepts_is_accepted_and_means_the_same(jvm: Any, text: str) -> None:
    java, parsed = Java(jvm), parse(text, {})
    schema = java.parse(text)
    for form in (parsed.canonical, parsed.normalized):
        assert java.parse(form).equals(schema), form
