"""A Spark session for the format: Java, Python and settings.

    spark = local_session()
    spark.read.format("ottla")...

`profile()` is a dict of Spark settings for sessions made elsewhere. Most of what it sets removes
waiting from micro-batches: workers are reached by Unix sockets, checkpoints on a local disk are
written by plain renames, and the JVM leaves the processor to the work.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from ottla.spark.java import find_java
from ottla.spark.jvm import JVM_OPTIONS, Jvm
from ottla.spark.zygote import is_wanted, worker_python

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

CHECKPOINT_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
FEW_CORES: Final = 2
# The second compiler takes a third of a JVM's first minute, mostly for code that hardly runs again.
# Ten times its default thresholds still compile what runs often.
_COMPILE_LATER: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 "
    "-XX:Tier4MinInvocationThreshold=10000 -XX:Tier4CompileThreshold=100000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
_BY_RENAME: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def profile(*, local_checkpoints: bool = True) -> dict[str, str]:
    """Settings for any session. Checkpoints on object stores need Spark's own file manager."""
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    }
    few = (os.cpu_count() or 1) <= FEW_CORES  # no cores for a parallel collector
    settings[JVM_OPTIONS] = f"{_COMPILE_LATER} -XX:+UseSerialGC" if few else _COMPILE_LATER
    if hasattr(os, "fork"):
        settings[UNIX_SOCKETS] = "true"
    if local_checkpoints:
        settings[CHECKPOINT_MANAGER] = _BY_RENAME
    return settings


def prepare_environment() -> None:
    """Set the Java that Spark starts, and this Python for its workers.

    Call it before the first session: the JVM reads the environment once.
    """
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def local_session(
    name: str = "ottla",
    *,
    master: str = "local[2]",
    config: Mapping[str, str] | None = None,
    stock: bool = False,
) -> SparkSession:
    """A session on this machine, without its web page; `stock` leaves the profile out.

    Spark keeps one session per process: an existing one is returned.
    """
    settings = local_settings({**({} if stock else profile()), **(config or {})})
    start_jvm({**settings, "spark.master": master})
    from pyspark.sql import SparkSession

    builder: SparkSession.Builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if is_wanted(settings) and spark.sparkContext.pythonExec == sys.executable:
        spark.sparkContext.pythonExec = worker_python()
    register(spark)
    return spark


def local_settings(config: Mapping[str, str]) -> dict[str, str]:
    """Settings of a session on this machine; those of `config` win."""
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        **config,
    }


def start_jvm(settings: Mapping[str, str], log: Path | None = None) -> None:
    """Start the JVM of this process, unless it has one; its output goes to `log`."""
    prepare_environment()
    from pyspark import SparkContext

    with SparkContext._lock:
        if SparkContext._gateway is None:
            Jvm(settings, log).connect()


def register(spark: SparkSession) -> None:
    """Register the format with a session, so that queries can start concurrently.

    Spark finds the format by itself, but not in packages that were added as zip files. And a format
    that Spark finds has one map of environment variables for the whole JVM, to which each starting
    stream writes: two concurrent starts can corrupt its size, and then Spark 4.3 cannot send any
    task of this format ("Task not serializable: Illegal size 5 of collection, expected 6"). This
    registration uses a thread-safe map.
    """
    from ottla.spark.source import OttlaSource

    if not hasattr(spark, "_jvm"):  # a Connect session: the server has the maps
        spark.dataSource.register(OttlaSource)
        return
    context = spark.sparkContext
    assert context._jvm is not None  # a session that runs has one
    own = context.environment
    context.environment = context._jvm.java.util.concurrent.ConcurrentHashMap(own)
    try:
        spark.dataSource.register(OttlaSource)
    finally:
        context.environment = own
