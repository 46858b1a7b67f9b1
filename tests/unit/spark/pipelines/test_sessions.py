"""What a session does to the process it is begun in."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from ottla.spark.pipelines import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def hushed() -> Iterator[None]:
    context = SimpleNamespace(_accumulatorServer=SimpleNamespace())
    sessions._hush(cast("SparkSession", SimpleNamespace(sparkContext=context)))
    yield
    logging.getLogger().removeFilter(sessions._is_not_py4j)
    logging.getLogger("py4j").setLevel(logging.NOTSET)


@pytest.mark.usefixtures("hushed")
def test_tracebacks_of_a_jvm_that_is_gone_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Killed while a function of Python wrote a batch, a JVM left four screens of them."""
    try:
        raise ConnectionRefusedError
    except ConnectionRefusedError:
        logging.getLogger("py4j.clientserver").exception("exception on the Python Side")
    assert not caplog.records
    logging.getLogger("ottla").warning("ours")
    assert [one.message for one in caplog.records] == ["ours"]
