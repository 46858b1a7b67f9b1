"""A topic with a table of its own for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.tables import Place, places

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker


@pytest.fixture
def place(ottla_broker: EmbeddedBroker, tmp_path: Path) -> Place:
    return next(places(ottla_broker.bootstrap, tmp_path))
