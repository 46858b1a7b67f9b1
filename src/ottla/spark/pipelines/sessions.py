"""The session a pipeline runs in: on this machine, on a cluster, or at a Connect server.

Spark's log is long and written by another process: it goes to a file, except when debugging.
"""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ottla.spark.errors import NoJava
from ottla.spark.pipelines.errors import EnvironmentProblem, SessionLost
from ottla.spark.pipelines.graph import SPECULATION
from ottla.spark.pipelines.model import EXACTLY_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.early import EarlyJvm
    from ottla.spark.pipelines.load import Pipeline

DEFAULT_MASTER: Final = "local[*]"
WORKER_PYTHON: Final = "spark.pyspark.python"


def open_session(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    remote: str | None = None,
    log: Path | None,
    early: EarlyJvm | None = None,
) -> SparkSession:
    """A session with the format registered; the command line overrides the settings."""
    settings = pipeline.settings
    if master is None and remote is None:
        master, remote = settings.master, settings.remote
    exactly = any(one.delivery == EXACTLY_ONCE for one in pipeline.definition.flows.values())
    config = {**({SPECULATION: "false"} if exactly else {}), **settings.spark}
    from ottla.spark.session import register

    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise EnvironmentProblem("Spark is not installed: pip install 'ottla[spark]'") from None
    with warnings.catch_warnings():
        # PySpark warns about the version of pandas, which nothing here uses.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        try:
            if remote is not None:
                spark = _remote(remote, config)
            else:
                if log is not None:
                    log.parent.mkdir(parents=True, exist_ok=True)
                if early is not None:
                    early.connect(log)
                local = pipeline.places.are_local
                name = pipeline.definition.name
                spark = _classic(name, master or DEFAULT_MASTER, config, local=local, log=log)
            register(spark)
            if log is not None and is_classic(spark):
                _hush(spark)
        except NoJava as error:
            raise EnvironmentProblem(str(error)) from error
        except Exception as error:
            at = remote or master or DEFAULT_MASTER
            said = " ".join(str(error).split())[:300]
            where = f"; its log is {log}" if log is not None else ""
            raise EnvironmentProblem(
                f"Spark did not start at {at} ({said}){where}; --master and --remote name others"
            ) from error
    return spark


def _hush(spark: SparkSession) -> None:
    """PySpark prints tracebacks when its JVM is gone, and Py4J those of batches that fail in a
    function of Python; the run tells both in a sentence."""
    logging.getLogger().addFilter(_is_not_py4j)  # which logs with the root logger
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # and with those below this one
    server = spark.sparkContext._accumulatorServer
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # of this server


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def lives(spark: SparkSession) -> bool:
    """Whether a session still works; asks the process that it runs in."""
    try:
        if not is_classic(spark):
            return bool(spark.version)
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001  # each transport has errors of its own for a peer that is gone
        return False


def is_classic(spark: SparkSession) -> bool:
    """Whether this process started the JVM of the session; False for a Connect server."""
    return hasattr(spark, "_jvm")


@contextmanager
def closing(spark: SparkSession) -> Iterator[None]:
    """Stop a session after the block.

    The JVM of a lost session is ended too, because its state is unknown.
    """
    is_lost = False
    try:
        yield
    except SessionLost:
        is_lost = True
        raise
    finally:
        if is_lost or not lives(spark):
            _give_up(spark)
        else:
            spark.stop()


def _give_up(spark: SparkSession) -> None:
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that the JVM has exited
        spark.stop()
    if is_classic(spark):
        _forget_jvm()


def _forget_jvm() -> None:
    """Make PySpark forget its JVM; it has no call to start a second one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    Session._instantiatedSession = Session._activeSession = None
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)  # None if another process started the JVM
    if process is not None:
        process.kill()
        process.wait()
        process.stdin.close()
    with suppress(Exception):
        gateway.shutdown()


def jvm_settings(master: str, config: Mapping[str, str]) -> dict[str, str]:
    """Settings that the JVM of a session starts with; those of `config` win."""
    from ottla.spark.session import local_settings, profile

    # Where checkpoints are is known later, and set with the session.
    config = {**profile(local_checkpoints=False), **config, "spark.master": master}
    return local_settings(config) if master.startswith("local") else config


def _classic(
    name: str, master: str, config: Mapping[str, str], *, local: bool, log: Path | None
) -> SparkSession:
    from ottla.spark.session import local_session, profile, start_jvm

    config = {**profile(local_checkpoints=local), **config}
    start_jvm(jvm_settings(master, config), log)
    if master.startswith("local"):
        return local_session(name, master=master, config=config, stock=True)
    # PySpark takes the workers' Python from the environment and ignores the settings.
    os.environ["PYSPARK_PYTHON"] = config[WORKER_PYTHON]
    from pyspark.sql import SparkSession as Session

    builder: SparkSession.Builder = Session.builder.appName(name).master(master)
    for key, value in {"spark.ui.showConsoleProgress": "false", **config}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _remote(url: str, config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession as Session

    spark = Session.builder.remote(url).getOrCreate()
    for key, value in config.items():
        spark.conf.set(key, value)
    return spark
