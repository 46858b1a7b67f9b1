"""Runs a pipeline in the session of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.spark.pipelines.board import Board
from ottla.spark.pipelines.compiler import Compiler
from ottla.spark.pipelines.graph import ordered
from ottla.spark.pipelines.listener import BoardListener
from ottla.spark.pipelines.load import load
from ottla.spark.pipelines.preflight import prepare
from ottla.spark.pipelines.runner import Runner

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def run_once(
    spark: SparkSession, bootstrap: str, file: Path, state: Path, env: str | None = None
) -> Board:
    """One pass over a pipeline in this session."""
    pipeline = load(file, state=str(state), env=env)
    definition = pipeline.definition
    flows = ordered(definition)
    prepare(bootstrap, definition, flows)
    board = Board([one.name for one in flows], definition.hooks)
    listener = BoardListener(board)
    spark.streams.addListener(listener)
    try:
        compiler = Compiler(pipeline, spark, bootstrap, once=True)
        assert Runner(definition, flows, board, once=True).run(compiler), board.views()
    finally:
        spark.streams.removeListener(listener)
    return board
