"""A query's offsets where others can see them, when Spark ends the query and its processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.cluster.view import TopicPartition
from ottla.offsets.urls import store_from_url
from ottla.spark.log.offset_stores import stored
from tests.support.spark import run
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.testing.embedded import EmbeddedBroker

ROUNDS = 3


def positions(broker: EmbeddedBroker, kind: str, place: str) -> dict[TopicPartition, int]:
    if kind != "group":
        with store_from_url(place).sync as store:
            return stored(store, "spark")

    async def ask() -> dict[TopicPartition, int]:
        async with Admin(broker.bootstrap) as admin:
            found = await admin.list_group_offsets(place)
            return {TopicPartition(one.topic, one.partition): one.offset for one in found}

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", ["files", "sqlite", "group"])
def test_the_end_of_an_available_now_query_is_saved_and_of_once_with_the_next_run(
    kind: str, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    place = {"files": f"{tmp_path}/o", "sqlite": f"sqlite:///{tmp_path}/o.db", "group": "seen"}[
        kind
    ]
    options = {"offsetsGroup" if kind == "group" else "offsetStore": place}
    reader = spark.readStream.format("ottla").options(subscribe=topic, startingOffsets="earliest")
    frame = reader.options(**{"kafka.bootstrap.servers": broker.bootstrap, **options}).load()
    at = TopicPartition(topic, 0)
    for number in range(1, ROUNDS + 1):
        fill(broker, topic, {0: 10})
        run(frame, tmp_path / "query", sink="noop", availableNow=True)
        assert positions(broker, kind, place)[at] == 10 * number
    assert list(tmp_path.rglob("*.tmp")) == []
    for number in range(ROUNDS + 1, ROUNDS + 3):
        fill(broker, topic, {0: 10})
        run(frame, tmp_path / "query", sink="noop", once=True)
        assert positions(broker, kind, place)[at] >= 10 * (number - 1)
