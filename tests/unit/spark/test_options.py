"""Options by the names of Spark's Kafka source: defaults, refusals, precedence (case 1)."""

from __future__ import annotations

import logging

import pytest

from ottla.client.cluster.view import TopicPartition
from ottla.spark.client_settings import client_settings, producer_options
from ottla.spark.errors import BadOption
from ottla.spark.log.planning import Split
from ottla.spark.offsets import EARLIEST, LATEST, AtEnd, AtTime, Given, OfGroup
from ottla.spark.options import Mode, Selection, SourceOptions, duration, parse_source, warn_unknown

BASE = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"}


def parsed(mode: Mode = "stream", /, **options: str) -> SourceOptions:
    return parse_source({**BASE, **options}, mode)


def test_case_01_defaults_are_those_of_the_kafka_format() -> None:
    stream = parsed()
    assert stream.start == AtEnd(LATEST)
    assert parsed("batch").start == AtEnd(EARLIEST)
    assert parsed("batch").end == AtEnd(LATEST)
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.poll_timeout == 120
    assert (stream.retries, stream.max_delay) == (3, 900)
    assert (stream.max_offsets, stream.min_offsets, stream.max_bytes) == (None, None, None)
    assert stream.split == Split(None, None, 200_000, None)
    assert stream.client.isolation == "read_uncommitted"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer"),
        ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes"),
        ({"kafka.ssl.keystore.key": "-----BEGIN"}, "kafka.ssl.keystore.location"),
        ({"kafka.ssl.key.pem": "-----BEGIN"}, "kafka.ssl.key.location"),
        ({"kafka.ssl.truststore.type": "JKS"}, "keytool -importkeystore"),
        ({"kafka.ssl.engine.factory.class": "x"}, "no classes are loaded"),
        ({"kafka.sasl.pasword": "x"}, "kafka.sasl.pasword"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"endingTimestamp": "5"}, "endingTimestamp"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp"),
        ({"assign": '{"t": [0]}'}, "assign and subscribe"),
        ({"subscribe": " , "}, "subscribe"),
        ({"startingOffsets": '{"t": 5}'}, "startingOffsets"),
        ({"startingOffsets": "soon"}, "startingOffsets"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "10m"}, "maxBytesPerTrigger"),
        ({"maxBytesPerTrigger": "9", "store": "redis", "path": "redis://h"}, "maxBytesPerTrigger"),
        ({"maxBytesPerTrigger": "9", "store": "ss", "path": "/x.ss"}, "maxBytesPerTrigger"),
        ({"maxBytesPerTrigger": "9", "store": "segments", "path": "/x"}, "maxBytesPerTrigger"),
        (
            {"maxBytesPerTrigger": "9", "tier": "only", "tierUrl": "file:///x"},
            "maxBytesPerTrigger",
        ),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"maxTriggerDelay": "a while"}, "maxTriggerDelay"),
        ({"columns": ","}, "columns"),
        ({"tier": "only"}, "tier"),
        ({"offsetStore": "file:///offsets?lance=client"}, "offsetStore"),
    ],
)
def test_case_01_a_refused_option_errors_with_its_name(options: dict[str, str], named: str) -> None:
    with pytest.raises(BadOption, match=named.replace(".", r"\.")):
        parsed(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t": {"0": -1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"t": {"0": -2}}'},
    ],
)
def test_case_05_a_batch_has_a_beginning_and_an_end(options: dict[str, str]) -> None:
    with pytest.raises(BadOption, match=next(iter(options))):
        parsed("batch", **options)


def test_case_01_names_do_not_mind_case() -> None:
    options = parsed(STARTINGOFFSETS="EARLIEST", failondataloss="False", MinPartitions="7")
    assert options.start == AtEnd(EARLIEST)
    assert not options.fail_on_data_loss
    assert options.split.min_partitions == 7


def test_what_to_read() -> None:
    base = {"kafka.bootstrap.servers": "b:1"}
    assign = parse_source({**base, "assign": '{"t": [0, 2]}'}, "batch").selection
    assert assign.assign == frozenset({TopicPartition("t", 0), TopicPartition("t", 2)})
    assert assign.names() == ["t"]
    assert parse_source({**base, "subscribe": "b, a,b"}, "batch").selection.names() == ["a", "b"]
    pattern = parse_source({**base, "subscribePattern": "a.*"}, "batch").selection
    assert pattern == Selection(pattern="a.*")
    assert pattern.names() is None
    for wrong in ({}, {"subscribePattern": "("}, {"assign": "{}"}, {"assign": '{"t": 0}'}):
        with pytest.raises(BadOption, match=next(iter(wrong), "one of")):
            parse_source({**base, **wrong}, "batch")


def test_times_come_before_offsets() -> None:
    by_time = {"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "startingOffsets": "earliest"}
    assert parsed(**by_time).start == AtTime({TopicPartition("t", 0): 5}, or_latest=False)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    everywhere = parsed(startingTimestamp="7", **strategy, **by_time)
    assert everywhere.start == AtTime(7, or_latest=True)
    assert everywhere.start_option == "startingTimestamp"
    assert parsed("batch", endingTimestamp="9").end == AtTime(9, or_latest=True)


def test_places() -> None:
    given = parsed(startingOffsets='{"t": {"0": 23, "1": -2}}').start
    assert given == Given({TopicPartition("t", 0): 23, TopicPartition("t", 1): EARLIEST})
    assert parsed(startingOffsets="group:lag").start == OfGroup("lag")


def test_durations() -> None:
    assert duration("x", "500ms") == 0.5
    assert duration("x", "90") == 0.09
    assert duration("x", "15m") == duration("x", "15 min") == 900
    assert duration("x", "2h") == 7200


def test_an_unknown_option_is_a_warning_with_near_names(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        said = warn_unknown({**BASE, "startingOffset": "x", "kafka.isolation.levels": "y"})
    assert "startingOffsets" in said[0]
    assert "kafka.isolation.level" in said[1]
    assert len(caplog.records) == 2
    assert not warn_unknown({**BASE, "startingoffsets": "latest", "kafka.max.poll.records": "5"})


def test_client_settings_have_kafkas_names() -> None:
    settings = client_settings(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "5000",
            "kafka.isolation.level": "read_committed",
            "kafka.check.crcs": "false",
        },
        writes=False,
    )
    assert settings.bootstrap == "a:1,b:2"
    assert (settings.client_id, settings.request_timeout) == ("me", 5)
    assert (settings.isolation, settings.verify_crc) == ("read_committed", False)
    with pytest.raises(BadOption, match=r"kafka\.isolation\.level"):
        client_settings({**BASE, "kafka.isolation.level": "serial"}, writes=False)
    with pytest.raises(BadOption, match=r"kafka\.value\.serializer"):
        client_settings({**BASE, "kafka.value.serializer": "x"}, writes=True)
    with pytest.raises(BadOption, match=r"kafka\.linger\.ms"):
        producer_options({"kafka.linger.ms": "soon"})
    assert producer_options({"kafka.acks": "-1", "compression": "zstd"}).acks == "all"
