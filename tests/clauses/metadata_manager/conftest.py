"""Event logs: the one in memory, and a topic of the module's broker."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from ottla.tier.catalogue import InProcessMetadataEventLog
from tests.clauses.metadata_manager.managers import COUNT, Managers, open_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ottla.tier.catalogue import MetadataEventLog


@pytest.fixture(params=["in process", "topic"])
async def event_log(request: pytest.FixtureRequest, group: str) -> AsyncIterator[MetadataEventLog]:
    """Both implementations of the seam."""
    if request.param == "in process":
        yield InProcessMetadataEventLog(COUNT)
        return
    broker = request.getfixturevalue("broker")
    topic = f"metadata-of-{group}"
    broker.create_topic(topic, partitions=COUNT)
    log = await open_topic(broker.bootstrap, topic)
    yield log
    await log.close()


@pytest.fixture
async def managers(tmp_path: Path) -> AsyncIterator[Managers]:
    """Makes managers, and closes them."""
    async with AsyncExitStack() as stack:
        yield Managers(tmp_path, stack)
