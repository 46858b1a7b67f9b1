"""One Spark session for a test process, with Spark's own Kafka source in it where Maven has it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.jvm import RESOLVE_TIMEOUT, NoJvm, cached

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POM: Final = Path(__file__).with_suffix("") / "pom.xml"
PATIENCE: Final = 60
NO_PAUSE: Final = {"processingTime": "0 seconds"}


@functools.cache
def connector_jars() -> list[Path] | NoJvm:
    """The jars of the `kafka` format, or why there are none."""
    try:
        with cached("spark-kafka-4.2.0") as (jars, filling):
            if filling is not None:
                _download(filling)
    except NoJvm as missing:
        return missing
    return sorted(jars.glob("*.jar"))


def _download(into: Path) -> None:
    if shutil.which("mvn") is None:
        raise NoJvm("Spark's Kafka source comes through Maven, and there is no mvn here")
    command = [
        *("mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={into}"),
    ]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT, check=True)
    except subprocess.TimeoutExpired:
        raise NoJvm(f"mvn did not fetch the jars within {RESOLVE_TIMEOUT:.0f} s") from None
    except subprocess.CalledProcessError as failed:
        first = re.search(r"\[ERROR\] (.*)", failed.stdout)
        said = first[1] if first else failed.stderr
        raise NoJvm(f"mvn could not fetch the jars: {said}") from None


@contextmanager
def session(
    config: Mapping[str, str] | None = None, *, stock: bool = False
) -> Iterator[SparkSession]:
    """A session that ends with the block; one that is found to be lost, with its JVM."""
    from ottla.spark.pipelines.sessions import closing
    from ottla.spark.session import local_session

    jars = connector_jars()
    found = {} if isinstance(jars, NoJvm) else {"spark.jars": ",".join(str(one) for one in jars)}
    with pyspark_warnings():
        spark = local_session(config={**found, **(config or {})}, stock=stock)
    spark.sparkContext.setLogLevel("ERROR")
    with closing(spark):
        yield spark


@contextmanager
def pyspark_warnings() -> Iterator[None]:
    """PySpark warns of the pandas it finds, which nothing here uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield


def run(
    frame: DataFrame,
    checkpoint: Path,
    *,
    sink: str = "memory",
    options: Mapping[str, str] | None = None,
    **trigger: Any,
) -> StreamingQuery:
    """Run a stream to its end (`availableNow=True` or `once=True`)."""
    query = start(frame, checkpoint, sink=sink, options=options, **trigger)
    assert query.awaitTermination(PATIENCE), "the query has not ended"
    return query


def start(
    frame: DataFrame,
    checkpoint: Path,
    *,
    sink: str = "memory",
    options: Mapping[str, str] | None = None,
    **trigger: Any,
) -> StreamingQuery:
    """Start a stream."""
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(checkpoint))
    return writer.options(**dict(options or {})).trigger(**trigger or NO_PAUSE).start()
