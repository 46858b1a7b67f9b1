"""Which records retention must keep because a table has not taken them yet.

The newest pointer of a topic (`ottla.tables`, written by the table worker) names the table's
position; records from there on are held, up to `ottla.table.hold.bytes` of a partition. The group
that mirrors the position decides nothing: any client may commit to it.

- A topic without a pointer waits from its beginning, unless its table begins somewhere else.
- Until the pointers have been read once everything is held; an error leaves what is known. A
  position that is late keeps a little more.
- Pointers are read as a client does, since another node may lead their topic; from the last one on.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.retention import Hold
from ottla.metadata.image import topic_id_text
from ottla.metadata.names import POINTER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from ottla.broker.access.door import Door
    from ottla.broker.cluster import Cluster
    from ottla.broker.workers import Workers
    from ottla.client.reader.types import Record
    from ottla.log.checkpoints import TopicPartition
    from ottla.log.config import LogConfig

READ_SECONDS: Final = 10.0
"""For a leader that moves; then retention goes on with what is known."""
PREFETCH: Final = 1024 * 1024
MAX_BYTES: Final = 1024 * 1024
"""A pointer of 10,000 partitions has 200 KB; what is longer is none."""

logger = logging.getLogger(__name__)


class Position(NamedTuple):
    """How far the table of a topic is."""

    topic_id: str
    offsets: Mapping[int, int]


def parse_pointer(value: bytes) -> Position | None:
    """What a record of the topic says; None if it is no pointer."""
    if len(value) > MAX_BYTES:
        return None
    try:
        found = json.loads(value)
        offsets = {int(number): int(offset) for number, offset in found["position"].items()}
        return Position(str(found["topic_id"]), offsets)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def waits_for_table(config: LogConfig) -> bool:
    """Whether retention of such a log asks here."""
    return config.ottla_table_enable and config.ottla_table_hold_bytes > 0


class TableHold:
    """Of one node; made when a topic has a table."""

    def __init__(
        self,
        cluster: Cluster,
        workers: Workers,
        addresses: Mapping[str, tuple[str, int]],
        door: Callable[[], Door | None],
    ) -> None:
        self._cluster = cluster
        self._workers = workers
        self._addresses = addresses
        self._door = door
        self._topic_id: UUID | None = None
        self._next = 0
        self._positions: dict[str, Position] = {}
        self._has_looked = False

    def of(self, name: TopicPartition, config: LogConfig) -> Hold | None:
        """What is kept of a log; None: retention decides alone."""
        topic = self._cluster.image.topics_by_name.get(name.topic)
        if topic is None or not waits_for_table(config):
            return None
        known = self._positions.get(name.topic)
        if known is not None and known.topic_id == topic_id_text(topic.topic_id):
            offset = known.offsets.get(name.partition, 0)
        elif self._has_looked and config.ottla_table_start != "earliest":
            return None
        else:
            offset = 0
        return Hold(offset, config.ottla_table_hold_bytes)

    async def look(self) -> None:
        """Read pointers that were written since the last time."""
        topic = self._cluster.image.topics_by_name.get(POINTER_TOPIC)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id:
            self._topic_id, self._next, self._positions = topic_id, 0, {}
            self._has_looked = False
        try:
            if topic_id is not None:
                await self._read(topic_id)
            self._has_looked = True
        except Exception as error:  # noqa: BLE001  # the next round of retention tries again
            self._next = 0
            logger.warning("positions of tables cannot be read: %s", error)

    async def _read(self, topic_id: UUID) -> None:
        for module in ("ottla.broker.access.own_address", "ottla.client.reader.reader"):
            await self._workers.run(partial(import_module, module))
        from ottla.broker.access.own_address import own_address
        from ottla.client.reader.reader import Reader
        from ottla.client.reader.rows import decode_records

        class PlainReader(Reader):
            """Without Arrow: a few records."""

            _decode = staticmethod(decode_records)

        bootstrap, security = await own_address(self._cluster, self._addresses, self._door())
        reader = PlainReader(
            bootstrap,
            POINTER_TOPIC,
            start={0: self._next},
            stop="latest",
            isolation_level="read_committed",
            topic_id=topic_id.bytes,
            prefetch=PREFETCH,
            client_id=f"ottla-hold-{self._cluster.node_id}",
            security=security,
            api_timeout=READ_SECONDS,
        )
        async with reader:
            async for record in reader.records():
                self._apply(record)

    def _apply(self, record: Record) -> None:
        topic = (record.key or b"").decode(errors="replace")
        found = None if record.value is None else parse_pointer(record.value)
        if found is not None:
            self._positions[topic] = found
        elif record.value is None:
            self._positions.pop(topic, None)
        self._next = record.offset + 1
