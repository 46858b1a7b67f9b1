"""Checks that need Spark: plans, schemas, and connections from executors to the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.client.cluster.bootstrap import parse_bootstrap
from ottla.spark.pipelines.compiler import Compiler
from ottla.spark.pipelines.errors import DefinitionError, EnvironmentProblem
from ottla.spark.pipelines.failures import explain
from ottla.spark.pipelines.graph import ordered
from ottla.spark.pipelines.preflight import prepare
from ottla.spark.pipelines.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ottla.spark.pipelines.load import Pipeline
    from ottla.spark.pipelines.model import Flow

CONNECT_SECONDS: Final = 5.0
# More tasks than most clusters have slots, so that every executor gets one.
TASKS: Final = 32
# Spark's Python does not have what it needs.
_OF_SURROUNDINGS: Final = ("DATA_SOURCE_NOT_FOUND", "ModuleNotFoundError", "PackageNotFoundError")


def deep_check(
    pipeline: Pipeline, bootstrap: str, *, master: str | None, remote: str | None
) -> dict[str, str]:
    """The schema of each flow."""
    flows = ordered(pipeline.definition)
    prepare(bootstrap, pipeline.definition, flows, pipeline.settings.kafka)
    log = pipeline.places.state / "spark.log"
    spark = open_session(pipeline, master=master, remote=remote, log=log)
    try:
        compiler = Compiler(pipeline, spark, bootstrap)
        found = {flow.name: checked_schema(compiler, flow) for flow in flows}
        _check_routes(spark, bootstrap)
    finally:
        spark.stop()
    return found


def checked_schema(compiler: Compiler, flow: Flow) -> str:
    """The schema of a flow by Spark's plan; nothing is run."""
    try:
        return compiler.frame(flow).schema.simpleString()
    except DefinitionError:
        raise
    except Exception as error:
        sentence = f"flow {flow.name}: {explain(error).sentence}"
        if any(one in str(error) for one in _OF_SURROUNDINGS):
            raise EnvironmentProblem(sentence) from error
        raise DefinitionError(sentence) from error


def _check_routes(spark: SparkSession, bootstrap: str) -> None:
    """One connection from each executor."""
    addresses = [(one.host, one.port) for one in parse_bootstrap(bootstrap)]

    def connect(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import socket

        import pyarrow

        said = []
        for host, port in addresses:
            try:
                socket.create_connection((host, port), CONNECT_SECONDS).close()
            except OSError as error:
                said.append(f"{socket.gethostname()} does not reach {host}:{port} ({error})")
        for _ in batches:
            column = pyarrow.array(said, pyarrow.string())
            yield pyarrow.RecordBatch.from_arrays([column], ["problem"])

    tried = spark.range(0, TASKS, 1, TASKS).mapInArrow(connect, "problem string")
    problems = sorted({row.problem for row in tried.distinct().collect()})
    if problems:
        raise EnvironmentProblem(
            f"executors do not reach the broker: {'; '.join(problems)}; "
            "the broker's listeners must have addresses that they can reach"
        )
