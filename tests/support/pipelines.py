"""Runs a pipeline in the session of the tests."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.spark.pipelines.board import Board
from ottla.spark.pipelines.compiler import Compiler
from ottla.spark.pipelines.graph import ordered
from ottla.spark.pipelines.iceberg_sink import flow_table
from ottla.spark.pipelines.listener import BoardListener
from ottla.spark.pipelines.load import load
from ottla.spark.pipelines.preflight import prepare
from ottla.spark.pipelines.runner import Runner
from ottla.tables.iceberg_catalogs import open_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

PATIENCE: Final = 240.0


def run_once(
    spark: SparkSession,
    bootstrap: str,
    file: Path,
    state: Path,
    env: str | None = None,
    *,
    backfill: bool = False,
) -> Board:
    """One pass over a pipeline in this session."""
    pipeline = load(file, state=str(state), env=env)
    definition = pipeline.definition
    flows = ordered(definition)
    prepare(bootstrap, definition, flows)
    board = Board([one.name for one in flows], definition.hooks)
    with _listened(spark, board):
        compiler = Compiler(pipeline, spark, bootstrap, once=True, backfill=backfill)
        assert Runner(definition, flows, board, once=True).run(compiler), board.views()
    return board


@contextmanager
def running(
    spark: SparkSession, bootstrap: str, file: Path, state: Path
) -> Iterator[tuple[Board, Callable[[Callable[[], bool]], None]]]:
    """A pipeline that runs, and a function that drives it until something holds."""
    pipeline = load(file, state=str(state))
    definition = pipeline.definition
    flows = ordered(definition)
    prepare(bootstrap, definition, flows)
    board = Board([one.name for one in flows], definition.hooks)
    runner = Runner(definition, flows, board)

    def until(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, board.views()
            runner.step(compiler)
            time.sleep(0.05)

    with _listened(spark, board):
        compiler = Compiler(pipeline, spark, bootstrap)
        try:
            yield board, until
        finally:
            runner.stop()
            runner.run(compiler)


@contextmanager
def _listened(spark: SparkSession, board: Board) -> Iterator[None]:
    listener = BoardListener(board)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


def iceberg_rows(file: Path, state: Path, flow: str) -> list[dict[str, Any]]:
    """The rows of a flow's Iceberg table, by another engine."""
    import polars

    pipeline = load(file, state=str(state))
    target = pipeline.definition.flows[flow].writes
    where = flow_table(pipeline.places, target)  # type: ignore[arg-type]  # it is one
    catalog = open_catalog(where.catalog, where.place)
    try:
        location = catalog.load_table(where.full_name).metadata_location
    finally:
        catalog.close()
    return polars.scan_iceberg(location).collect().to_dicts()
