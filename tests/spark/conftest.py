"""One broker and one Spark session for all tests of this directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.testing.embedded import EmbeddedBroker
from tests.support.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session() as running:
        yield running
