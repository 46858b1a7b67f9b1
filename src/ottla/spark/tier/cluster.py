"""The object store in the role of a cluster, for `tier=only`.

Topics, their ids and partitions come from the names of objects, logs end where the tier ends. The
store is listed at most once per `metadataTtlMs`.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.client.cluster.view import NO_LEADER, Partition, Topic, TopicPartition
from ottla.log.checkpoints import CorruptCheckpoint, decode_id, encode_id
from ottla.spark.background import background
from ottla.spark.cluster import is_selected
from ottla.spark.errors import BadOption
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.tier.catalogue.segments import TopicIdPartition
from ottla.tier.reader.planning import newest
from ottla.tier.store.layout import META_SUFFIX
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.client_settings import Isolation
    from ottla.spark.offsets import Offsets
    from ottla.spark.options import Selection
    from ottla.spark.tier.planning import TierPlanner

_DIRECTORY: Final = re.compile(r"(?P<topic>.+)-(?P<id>[A-Za-z0-9_-]{22})")


class TierCluster:
    """The topics of one store, for one thread at a time."""

    def __init__(
        self, planner: TierPlanner, isolation: Isolation, ids: frozenset[str], ttl: float
    ) -> None:
        self._planner = planner
        self._isolation = isolation
        self._ids = ids
        self._ttl = ttl
        self._topics: dict[str, Topic] = {}
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        self._listed_at = -float("inf")

    def topics(self, selection: Selection) -> dict[str, Topic]:
        """The topics of a query that the store has."""
        self._topics = background().call(self._list(selection))
        return self._topics

    def offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        """The offset at a time in milliseconds, or at an end (-1, -2); -1 where there is none."""
        if time.monotonic() - self._listed_at >= self._ttl:
            self._ends.clear()
            self._listed_at = time.monotonic()
        return background().call(self._offsets(at))

    def wait_for_more(self, known: Offsets, within: float) -> bool:
        """The store does not notify readers, so there is nothing to wait for."""
        time.sleep(within)
        return True

    def committed(self, group: str) -> Offsets:
        """Groups are kept by brokers."""
        raise BadOption(f"startingOffsets=group:{group} needs a broker: leave tier=only out")

    def commit(self, group: str, offsets: Offsets) -> None:
        """Groups are kept by brokers."""
        raise BadOption(f"offsetsGroup={group} needs a broker: leave tier=only out")

    def close(self) -> None:
        """Does nothing."""

    async def _list(self, selection: Selection) -> dict[str, Topic]:
        prefix = self._planner.storage.prefix
        found: dict[str, dict[UUID, set[int]]] = {}
        async for one in self._planner.storage.store.list(prefix):
            directory, _, inside = one.key.removeprefix(prefix).partition("/")
            number = inside.partition("/")[0]
            parts = _DIRECTORY.fullmatch(directory)
            if parts is None or not one.key.endswith(META_SUFFIX) or not number.isdecimal():
                continue
            topic = parts["topic"]
            try:
                topic_id = decode_id(parts["id"])
            except CorruptCheckpoint:
                continue
            if not self._ids or parts["id"] in self._ids:
                found.setdefault(topic, {}).setdefault(topic_id, set()).add(int(number))
        return {
            name: self._topic(name, found[name])
            for name in sorted(found)
            if is_selected(Topic(name, ZERO_UUID, name.startswith("__"), ()), selection)
        }

    def _topic(self, name: str, ids: Mapping[UUID, set[int]]) -> Topic:
        if len(ids) > 1:
            listed = ", ".join(sorted(map(encode_id, ids)))
            raise BadOption(
                f"the store has several topics {name!r}, by their ids {listed}: say which with "
                "the option tierTopicId"
            )
        ((topic_id, numbers),) = ids.items()
        partitions = [Partition(one, NO_LEADER, -1, (), (), ()) for one in sorted(numbers)]
        return Topic(name, topic_id.bytes, is_internal=False, partitions=tuple(partitions))

    async def _offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        return {place: await self._offset(place, when) for place, when in at.items()}

    async def _offset(self, place: TopicPartition, when: int) -> int:
        topic_id = UUID(bytes=self._topics[place.topic].id)
        if place not in self._ends:
            self._ends[place] = await self._look(TopicIdPartition(topic_id, *place))
        first, end = self._ends[place]
        if when in (EARLIEST, LATEST):
            return first if when == EARLIEST else end
        plan = await self._planner.reader.plan(
            *place, start_timestamp_ms=when, topic_id=topic_id, isolation_level=self._isolation
        )
        return plan.start_offset if plan.start_offset < end else -1

    async def _look(self, tip: TopicIdPartition) -> tuple[int, int]:
        segments = await self._planner.manifests.refresh(tip)
        # Earlier segments matter only for committed reads: a transaction may begin in them.
        first = None if self._isolation == "read_committed" else newest(segments).start_offset
        plan = await self._planner.reader.plan(
            *(tip.topic, tip.partition),
            start_offset=first,
            topic_id=tip.topic_id,
            isolation_level=self._isolation,
        )
        return plan.log_start, plan.end_offset
