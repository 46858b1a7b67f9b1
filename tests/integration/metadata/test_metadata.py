"""The metadata file while another process locks it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.metadata.changes.configs import SetFeature
from ottla.metadata.errors import StoreBusy
from ottla.metadata.metadata import Metadata
from ottla.metadata.stores.sqlite import SqliteMetadataStore
from tests.support.metadata_lock import locked

if TYPE_CHECKING:
    from pathlib import Path


AGES = 3600.0


def feature(level: int) -> SetFeature:
    return SetFeature("f", level)


async def test_a_locked_file_keeps_the_proposal_alone_waiting(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    metadata = await Metadata.open(lambda: SqliteMetadataStore(path), wait=AGES)
    with locked(path) as release:
        proposal = asyncio.ensure_future(metadata.change(feature(1)))
        done, _ = await asyncio.wait([proposal], timeout=0.1)
        assert not done
        release()
        assert (await proposal).features == {"f": 1}
    await metadata.close()


async def test_a_file_that_stays_locked_fails_all_who_wait_and_changes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    metadata = await Metadata.open(lambda: SqliteMetadataStore(path), wait=0.2)
    before = metadata.image
    with locked(path):
        results = await asyncio.gather(
            *(metadata.change(feature(level)) for level in range(20)), return_exceptions=True
        )
        assert {type(result) for result in results} == {StoreBusy}
        assert "m.db" in str(results[0])
        assert metadata.image is before
    assert (await metadata.change(feature(7))).features == {"f": 7}
    await metadata.close()
