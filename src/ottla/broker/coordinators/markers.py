"""Markers: control batches that end a transaction in the partitions that took part in it.

- A marker counts as written when it is durable, not when it is appended: if a crash lost it, the
  transaction would stay open.
- The offsets of groups have a coordinator, which writes the marker and acts on it.
- A marker ends every verification of that producer in its partition: a verification from before the
  end of the transaction does not apply to a batch that comes after.
- Markers that are written in one turn of the event loop share a sync.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.coordinators.log import marker_batch
from ottla.broker.errors import ApiError
from ottla.broker.running.peers import PeerUnreachable
from ottla.log.errors import LogError
from ottla.log.producer_state import Origin
from ottla.metadata.names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.broker.coordinators.groups import GroupService
    from ottla.broker.coordinators.log import Hosting
    from ottla.broker.hosting.hosted import HostedPartition
    from ottla.broker.running.peers import Peers
    from ottla.broker.running.services import Lazy
    from ottla.coordination.machine import Marker
    from ottla.coordination.transactions.messages import Partition

WRITE_TXN_MARKERS_VERSION = 1


class MarkerWriter:
    """Writes markers to partitions that this node leads, and asks other nodes for theirs."""

    def __init__(self, hosting: Hosting, groups: Lazy[GroupService], peers: Lazy[Peers]) -> None:
        self._cluster = hosting.cluster
        self._partitions = hosting.partitions
        self._durability = hosting.durability
        self._clock = hosting.clock
        self._groups = groups
        self._peers = peers

    async def write(
        self, marker: Marker, partitions: Iterable[Partition]
    ) -> dict[Partition, ErrorCode]:
        """Try each partition once, on any node; a deleted partition counts as written."""
        codes: dict[Partition, ErrorCode] = {}
        by_leader: dict[int, list[Partition]] = {}
        for partition in partitions:
            leader = self._leader(partition)
            if leader is None:
                codes[partition] = ErrorCode.NONE
            else:
                by_leader.setdefault(leader, []).append(partition)
        answers = await asyncio.gather(
            *(
                self.write_here(marker, led)
                if leader == self._cluster.node_id
                else self._write_there(leader, marker, led)
                for leader, led in by_leader.items()
            )
        )
        for answer in answers:
            codes.update(answer)
        return codes

    def _leader(self, partition: Partition) -> int | None:
        name, index = partition
        topic = self._cluster.image.topic(name)
        if topic is None or index >= len(topic.partitions):
            return None
        return topic.partitions[index].leader

    async def write_here(
        self, marker: Marker, partitions: Collection[Partition]
    ) -> dict[Partition, ErrorCode]:
        """Write markers to partitions led here; returns their errors when all are durable."""
        codes: dict[Partition, ErrorCode] = {}
        written: list[HostedPartition] = []
        offsets = [partition for partition in partitions if partition[0] == CONSUMER_OFFSETS_TOPIC]
        others = [partition for partition in partitions if partition[0] != CONSUMER_OFFSETS_TOPIC]
        opening = self._partitions.opening(others, write=True)
        if opening is not None:
            await opening
        for partition in others:
            try:
                hosted = self._partitions.find(*partition)
                append_marker(hosted, marker, self._clock.wall_ms())
            except (ApiError, LogError) as error:
                codes[partition] = error.code
            else:
                codes[partition] = ErrorCode.NONE
                written.append(hosted)
        durable = self._durability.join(written)
        ended = await asyncio.gather(*(self._end_offsets(index, marker) for _, index in offsets))
        codes.update(zip(offsets, ended, strict=True))
        if durable is not None:
            await durable
        for hosted in written:
            if not hosted.log.online:
                codes[hosted.topic, hosted.index] = ErrorCode.KAFKA_STORAGE_ERROR
        return codes

    async def _end_offsets(self, index: int, marker: Marker) -> ErrorCode:
        try:
            await self._groups().end_transaction(index, marker)
        except (ApiError, LogError) as error:
            return error.code
        return ErrorCode.NONE

    async def _write_there(
        self, node_id: int, marker: Marker, partitions: list[Partition]
    ) -> dict[Partition, ErrorCode]:
        topics: dict[str, list[int]] = {}
        for name, index in partitions:
            topics.setdefault(name, []).append(index)
        request = WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.commit,
                    [WritableTxnMarkerTopic(name, indexes) for name, indexes in topics.items()],
                    marker.coordinator_epoch,
                )
            ]
        )
        codes = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        try:
            answer = await self._peers().ask(node_id, request, WRITE_TXN_MARKERS_VERSION)
        except PeerUnreachable:
            return codes
        for result in answer.markers:
            for topic in result.topics:
                for partition in topic.partitions:
                    codes[topic.name, partition.partition_index] = ErrorCode(partition.error_code)
        return codes


def append_marker(hosted: HostedPartition, marker: Marker, now_ms: int) -> None:
    """Append the marker to a partition that this node leads; `LogError` if the log refuses it."""
    hosted.verifications.pop(marker.producer_id, None)
    hosted.log.append(
        marker_batch(marker, now_ms),
        leader_epoch=hosted.leader_epoch,
        now_ms=now_ms,
        origin=Origin.COORDINATOR,
    )
