"""Which topics are tables, and what their logs have."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from ottla.client.errors import TopicAuthorizationFailed, UnknownTopic
from ottla.metadata.config.table_keys import PREFIX
from ottla.metadata.names import table_name
from ottla.tables.errors import BadTableSetting, TablePaused
from ottla.tables.names import dead_letter_table, topic_id_text
from ottla.tables.position import replaced
from ottla.tables.rounds import LogView
from ottla.tables.settings import topic_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime
    from typing import Literal

    from ottla.client.admin.admin import Admin
    from ottla.client.admin.types import ListedOffset
    from ottla.client.cluster.view import TopicPartition
    from ottla.tables.format import Offsets, TableFormat
    from ottla.tables.settings import TopicSettings


class Shard(NamedTuple):
    """One of `of` shares of the topics, counted from 0."""

    number: int
    of: int

    def has(self, topic: str) -> bool:
        """Whether the topic is of this share; all workers agree, whatever their settings."""
        return crc32(topic.encode()) % self.of == self.number


def parse_shard(text: str) -> Shard:
    """Of `K/N`; `BadTableSetting` if it is not one."""
    found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise BadTableSetting(f"expected K/N such as 0/4 with K below N, got {text[:20]!r}")
    return Shard(int(found[1]), int(found[2]))


async def enabled_topics(
    admin: Admin,
    names: Collection[str] | None,
    overrides: Mapping[str, Mapping[str, str]],
    shard: Shard | None = None,
    *,
    refuse: Callable[[BadTableSetting], None] | None = None,
) -> dict[str, TopicSettings]:
    """The topics that are kept as tables, by name; only those of `names` and `shard` if given.

    Keys of `overrides` count before those of the broker. A topic whose settings are wrong is left
    out and told to `refuse`, if there is one to tell; so is one whose settings may not be seen,
    unless it was named.
    """
    found = {}
    for listed in await admin.list_topics():
        if names is not None and listed.name not in names:
            continue
        if shard is not None and not shard.has(listed.name):
            continue
        try:
            entries = await admin.describe_configs("topic", listed.name)
            values = {
                one.name: one.value
                for one in entries
                if one.name.startswith(PREFIX) and one.value is not None
            }
            settings = topic_settings(listed.name, {**values, **overrides.get(listed.name, {})})
        except UnknownTopic:
            continue  # deleted since it was listed
        except TopicAuthorizationFailed as error:
            if names is not None:
                raise
            if refuse is not None:
                refuse(BadTableSetting(f"topic {listed.name!r}: {error}"))
            continue
        except BadTableSetting as error:
            if refuse is None:
                raise
            refuse(error)
            continue
        if settings is not None:
            found[listed.name] = settings
    return found


async def former_table(admin: Admin, topic: str, overrides: Mapping[str, Mapping[str, str]]) -> str:
    """The table's name of a topic that is deleted, or not kept as a table any more.

    `BadTableSetting` while it is: a worker would make the table again.
    """
    if await enabled_topics(admin, [topic], overrides):
        raise BadTableSetting(
            f"{topic} is kept as a table; first set ottla.table.enable=false on the topic, or stop "
            "the worker and set it in its file of settings"
        )
    key = f"{PREFIX}name"
    name = overrides.get(topic, {}).get(key)
    if name is None and any(one.name == topic for one in await admin.list_topics()):
        entries = await admin.describe_configs("topic", topic)
        name = next((one.value for one in entries if one.name == key), None)
    return name or table_name(topic)


async def why_no_table(
    admin: Admin, tables: TableFormat, topic: str, overrides: Mapping[str, Mapping[str, str]]
) -> str:
    """Of a topic that is not kept as a table: whether it exists, and what is left of its table."""
    if any(one.name == topic for one in await admin.list_topics()):
        return f"{topic} has no table; set ottla.table.enable=true on the topic"
    state = await asyncio.to_thread(tables.load, await former_table(admin, topic, overrides))
    if state is None or state.topic != topic:
        return f"there is no topic {topic!r}"
    return (
        f"there is no topic {topic!r}, and table {state.table} of a deleted topic of that name "
        f"stays as it is: other engines read {state.metadata_location}, and ottla table drop "
        f"{topic} deletes it"
    )


async def look(admin: Admin, settings: TopicSettings, *, is_new: bool) -> LogView:
    """The topic as it is now; where a new table begins is only looked up for one."""
    [described] = await admin.describe_topics([settings.topic])
    starts = await _offsets(admin, settings.topic, "earliest")
    ends = await _offsets(admin, settings.topic, "latest")
    begin: Offsets = starts
    if is_new and settings.start != "earliest":
        time = settings.start_time
        begin = ends if time is None else await _offsets(admin, settings.topic, time)
        begin = {one: offset if offset >= 0 else ends[one] for one, offset in begin.items()}
    return LogView(topic_id_text(described.id), starts, ends, begin)


async def check_own(admin: Admin, tables: TableFormat, settings: TopicSettings) -> None:
    """`TablePaused` if the table or its dead letters belong to a deleted topic of this name."""
    [described] = await admin.describe_topics([settings.topic])
    topic_id = topic_id_text(described.id)
    for name in (settings.table, dead_letter_table(settings.table)):
        state = await asyncio.to_thread(tables.load, name)
        why = None if state is None else replaced(state, topic_id)
        if why is not None:
            raise TablePaused(f"{settings.topic}: {why.name}: {why.sentence}")


async def _offsets(
    admin: Admin, topic: str, at: Literal["earliest", "latest"] | datetime
) -> dict[int, int]:
    found: dict[TopicPartition, ListedOffset] = await admin.list_offsets(
        [topic], at, isolation_level="read_committed"
    )
    return {one.partition: listed.offset for one, listed in found.items()}
