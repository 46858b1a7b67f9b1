"""Tables in an object store, and with a catalogue in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.tables.iceberg import open_snapshot
from ottla.tables.iceberg_catalogs import file_properties
from ottla.tables.pointer import read_pointers
from tests.support.s3 import moto_server, rsm_config
from tests.support.tables import Place, places

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing.embedded import EmbeddedBroker
    from tests.services import PostgresServer

pytestmark = pytest.mark.long


async def two_rounds(place: Place) -> None:
    await place.create()
    await place.fill([b"a"])
    await place.run_once()
    await place.fill([b"b"])
    assert await place.run_once() == {0: 2}
    assert place.values() == [b"a", b"b"]


async def test_a_warehouse_in_s3(ottla_broker: EmbeddedBroker, tmp_path: Path) -> None:
    place = next(places(ottla_broker.bootstrap, tmp_path))
    with moto_server() as endpoint:
        place.store = rsm_config(endpoint, "lake")
        await two_rounds(place)
        pointer = (await read_pointers(place.bootstrap))[place.topic]
        assert pointer.metadata_location.startswith(place.store["rsm.config.url"] + "/ottla/")
        properties = file_properties(place.settings.warehouse)
        found = open_snapshot(pointer.metadata_location, properties)
        assert [one.rows for one in found.files] == [1, 1]


async def test_a_catalogue_in_postgresql(
    ottla_broker: EmbeddedBroker, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    place = next(places(ottla_broker.bootstrap, tmp_path))
    place.catalog = postgres_server.url
    await two_rounds(place)
