"""Spark: where a query stands, in a store of the client"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import AnalysisException

from ottla.offsets import SyncLockFileOffsetStore, SyncSqliteOffsetStore
from ottla.sync import Producer
from tests.support.spark import run, session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ottla import EmbeddedBroker

RECORDS: Final = 10


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as running:
        yield running


def fill(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)


def frame(spark: SparkSession, broker: EmbeddedBroker, topic: str, store: str) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "offsetStore": store,
    }
    return spark.readStream.format("ottla").options(**options).load()


def test_a_query_saves_where_it_stands(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """Offsets are the client's: those of a query are saved in a store, to its last batch."""
    fill(broker, topic)
    read = frame(spark, broker, topic, f"{tmp_path}/offsets")
    for round_ in (1, 2):
        run(read, tmp_path / "query", sink="noop", availableNow=True)
        found = SyncLockFileOffsetStore(tmp_path / "offsets").list_all("spark")
        assert {key.stream: position for key, position in found.items()} == {
            topic: RECORDS * round_
        }
        fill(broker, topic)
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_query_saves_in_a_database(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """Any store will do: here SQLite."""
    fill(broker, topic)
    read = frame(spark, broker, topic, f"sqlite:///{tmp_path}/offsets.db")
    run(read, tmp_path / "query", sink="noop", availableNow=True)
    with SyncSqliteOffsetStore(tmp_path / "offsets.db") as store:
        assert [*store.list_all("spark").values()] == [RECORDS]


def test_a_store_that_cannot_hold_names_is_refused(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """Files of LANCE hold ids.

    Differs: topics of Spark have names, so that this layout is refused when the query is made.
    """
    with pytest.raises(AnalysisException, match="leave out \\?lance="):
        frame(spark, broker, topic, f"file://{tmp_path}/offsets?lance=client")
