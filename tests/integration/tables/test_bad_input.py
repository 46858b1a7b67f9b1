"""What tables are given, and is wrong (tables.md, section 18)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import ottla
from ottla.client.producer.producer import Producer
from ottla.metadata.names import POINTER_TOPIC
from ottla.tables.errors import NotATopicTable, TableError, TablePaused
from ottla.tables.iceberg import open_snapshot
from ottla.tables.pointer import read_pointers
from tests.integration.tables.test_typed import alter
from tests.support.tables import Place, places

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


@pytest.mark.parametrize("value", [b"{", b'{"version":2}', b"\xff", b'{"version":1}'])
async def test_section_18_what_is_no_pointer_is_passed_over(
    place: Place, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await place.create()
    await place.fill([b"one"])
    await place.run_once()
    async with Producer(place.bootstrap) as producer:
        await producer.send(POINTER_TOPIC, value, key=place.topic.encode())
    with caplog.at_level(logging.WARNING, logger="ottla.tables.pointer"):
        found = await read_pointers(place.bootstrap)
    assert found[place.topic].metadata_location == place.state().metadata_location
    assert "is passed over" in caplog.text
    table = await asyncio.to_thread(ottla.table, place.topic, bootstrap=place.bootstrap)
    assert table.to_arrow(["value"]).column("value").to_pylist() == [b"one"]


@pytest.mark.parametrize("text", [b"", b"{}", b"not JSON", b"\xff\xfe", b'{"format-version":9}'])
def test_section_18_metadata_that_is_no_icebergs_is_named(tmp_path: Path, text: bytes) -> None:
    """Fault: the library's own error, without the file's name."""
    path = tmp_path / "00001-x.metadata.json"
    path.write_bytes(text)
    with pytest.raises(TableError, match=f"{path} is no metadata of an Iceberg table"):
        open_snapshot(f"file://{path}")


def test_section_18_a_table_that_somebody_else_made_is_no_topics(tmp_path: Path) -> None:
    catalog = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("own")
    made = catalog.create_table("own.t", pa.schema([pa.field("a", pa.int64())]))
    catalog.close()
    with pytest.raises(NotATopicTable, match="read it as it is"):
        open_snapshot(made.metadata_location)


async def test_section_18_another_topics_table_of_that_name_pauses(place: Place) -> None:
    await place.create()
    await place.fill([b"first"])
    await place.run_once()
    await alter(place, enable="false")
    other = next(places(place.bootstrap, place.directory))
    await other.create(ottla_table_name=place.table)
    with pytest.raises(TablePaused, match="TopicReplaced") as caught:
        await other.run_once()
    state = place.state()
    assert state.topic_id in str(caught.value)
    assert place.values() == [b"first"]
