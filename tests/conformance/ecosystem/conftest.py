"""What these tests share: the jars, and a broker for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.ecosystem import ecosystem_classpath, ottla_process
from tests.support.jvm import NoJvm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def jvm() -> str:
    """The class path of Kafka Streams, Kafka Connect and MirrorMaker 2."""
    try:
        return ecosystem_classpath()
    except NoJvm as missing:
        pytest.skip(str(missing))


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with ottla_process(tmp_path / "broker") as address:
        yield address
