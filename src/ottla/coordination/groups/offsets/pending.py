"""Offsets of transactions that are still open.

They are kept by partition, and there by producer in the order in which they were written. As in the
log, the order decides: a later offset of any writer replaces a pending one, even if it takes effect
first. A replaced offset still makes the partition unstable until its transaction ends. A tombstone
drops pending offsets too: a commit does not restore deleted offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.coordination.groups.keys import OffsetKey
    from ottla.coordination.groups.records import OffsetValue

Partition: TypeAlias = tuple[str, int]


class PendingOffsets:
    """Pending offsets of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[Partition, dict[int, OffsetValue | None]]] = {}
        """The newest value of each producer, oldest first; None: replaced by a later offset."""
        self._producers: dict[int, set[OffsetKey]] = {}

    def add(self, producer_id: int, key: OffsetKey, value: OffsetValue) -> None:
        partitions = self.groups.setdefault(key.group_id, {})
        values = partitions.setdefault((key.topic, key.partition), {})
        values.pop(producer_id, None)
        values[producer_id] = value
        self._producers.setdefault(producer_id, set()).add(key)

    def overtake(self, key: OffsetKey) -> None:
        """Note that an offset outside a transaction was written."""
        values = self._values(key)
        for producer_id in values:
            values[producer_id] = None

    def drop(self, key: OffsetKey) -> None:
        for producer_id in tuple(self._values(key)):
            self._remove(producer_id, key)

    def end(self, producer_id: int, *, commit: bool) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """End the transaction of a producer; returns the offsets that take effect."""
        for key in tuple(self._producers.get(producer_id, ())):
            values = self._values(key)
            value = values[producer_id]
            if commit and value is not None:
                for older in values:
                    if older == producer_id:
                        break
                    values[older] = None
                yield key, value
            self._remove(producer_id, key)

    def _values(self, key: OffsetKey) -> dict[int, OffsetValue | None]:
        return self.groups.get(key.group_id, {}).get((key.topic, key.partition), {})

    def _remove(self, producer_id: int, key: OffsetKey) -> None:
        partitions = self.groups[key.group_id]
        values = partitions[key.topic, key.partition]
        del values[producer_id]
        if not values:
            del partitions[key.topic, key.partition]
        if not partitions:
            del self.groups[key.group_id]
        keys = self._producers[producer_id]
        keys.remove(key)
        if not keys:
            del self._producers[producer_id]
