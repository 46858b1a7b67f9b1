"""The worker as a client of Apache Kafka, with settings from a file."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from ottla.client.admin.admin import Admin
from ottla.client.producer.producer import Producer
from ottla.client.security import PLAINTEXT
from ottla.tables.inspecting import verify
from ottla.tables.pointer import read_pointers
from ottla.tables.settings import read_tables_file, topic_settings
from tests.support.tables import Place

if TYPE_CHECKING:
    from pathlib import Path


async def test_case_72_a_topic_of_apache_kafka_is_a_table(
    apache_bootstrap: str, tmp_path: Path
) -> None:
    place = Place(apache_bootstrap, tmp_path, f"table-{uuid4().hex[:8]}")
    path = tmp_path / "tables.toml"
    path.write_text(f"[topics.{place.topic}]\nottla.table.enable = true\n")
    file = read_tables_file(path)
    async with Admin(apache_bootstrap) as admin:
        await admin.create_topic(place.topic, 2)
        await place.fill([b"a", b"b"], 0)
        await place.fill([b"c", None], 1, key=b"k")
        async with Producer(apache_bootstrap, transactional_id=place.topic) as producer:
            with suppress(KeyError):
                async with producer.transaction():
                    await producer.send(place.topic, b"aborted", partition=0)
                    raise KeyError
            async with producer.transaction():
                await producer.send(place.topic, b"committed", partition=0)
        assert await place.run_once(overrides=file.topics) == {0: 6, 1: 2}
        assert place.values() == [b"a", b"b", b"committed", b"c", None]
        settings = topic_settings(place.topic, file.topics[place.topic])
        assert settings is not None
        tables = place.tables()
        found = await verify(apache_bootstrap, PLAINTEXT, admin, tables, settings)
        tables.close()
        assert [one.is_wrong for one in found] == [False, False]
        group = f"ottla.table.{place.table}"
        mirrored = {one.partition: one.offset for one in await admin.list_group_offsets(group)}
        assert mirrored == {0: 6, 1: 2}
    pointer = (await read_pointers(apache_bootstrap))[place.topic]
    assert pointer.position == {0: 6, 1: 2}
