"""Members of consumer groups for tests of rebalances, one shape for all clients.

`Ownership` is told by each member, in its rebalance callbacks, what it was given and what it gave
up. A partition that is given to a member while another still has it is written down as doubly
owned; tests look at that list. `RawMember` joins and then dies without a word, which the clients
cannot be made to do.
"""

from __future__ import annotations

import struct
import threading
import time
import uuid
import warnings
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from confluent_kafka import Consumer

from ottla.wire.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.schema.sync_group import SyncGroupRequest
from tests.support.raw_client import RawClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # see python_clients
    import kafka
    import kafka.coordinator.assignors.cooperative_sticky
    import kafka.coordinator.assignors.range
    import kafka.coordinator.assignors.roundrobin

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from ottla.wire.schema.join_group import JoinGroupResponse

Owned = tuple[str, int]
Seen = tuple[str, int, int]
"""Topic, partition and offset of a record that a member was given."""

SESSION_MS: Final = 10_000  # of members that do not die; long enough for a slow machine
DYING_SESSION_MS: Final = 200
HEARTBEAT_MS: Final = 50


class Ownership:
    """Who owns which partition, by what the members themselves were told."""

    def __init__(self) -> None:
        self.owners: dict[Owned, object] = {}
        self.doubly_owned: list[Owned] = []

    def assign(self, member: object, partitions: Iterable[Owned]) -> None:
        for partition in partitions:
            if self.owners.get(partition, member) is not member:
                self.doubly_owned.append(partition)
            self.owners[partition] = member

    def revoke(self, member: object, partitions: Iterable[Owned]) -> None:
        for partition in partitions:
            if self.owners.get(partition) is member:
                del self.owners[partition]

    def drop(self, member: object) -> None:
        self.revoke(member, list(self.owners))


class Member(Protocol):
    def poll(self) -> list[Seen]: ...

    def leave(self) -> list[Seen]:
        """Leave in good order; what was read and not yet told."""
        ...


class ConfluentMember:
    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        assignor: str,
        ownership: Ownership,
        *,
        instance: str | None = None,
    ) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "topic.metadata.refresh.interval.ms": 200,
        }
        if assignor == "consumer":
            config["group.protocol"] = "consumer"
        else:
            config |= {
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        if instance is not None:
            config["group.instance.id"] = instance
        self._ownership = ownership
        self._consumer = Consumer(config)
        self._consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Any, partitions: Any) -> None:
        self._ownership.assign(self, [(p.topic, p.partition) for p in partitions])

    def _revoked(self, _: Any, partitions: Any) -> None:
        self._ownership.revoke(self, [(p.topic, p.partition) for p in partitions])

    def poll(self) -> list[Seen]:
        found = self._consumer.consume(100, timeout=0.005)
        return [
            (r.topic() or "", r.partition() or 0, r.offset() or 0)
            for r in found
            if r.error() is None
        ]

    def leave(self) -> list[Seen]:
        self._consumer.close()
        self._ownership.drop(self)
        return []


class KafkaPythonMember(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped library
    """Polls in a thread of its own: a poll that ends while it waits for a join loses the answer."""

    ASSIGNORS: Final = {
        "range": kafka.coordinator.assignors.range.RangePartitionAssignor,
        "roundrobin": kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
        "cooperative-sticky": (
            kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor
        ),
    }

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        assignor: str,
        ownership: Ownership,
        *,
        instance: str | None = None,
    ) -> None:
        self._ownership = ownership
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=50,
            metadata_max_age_ms=200,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[self.ASSIGNORS[assignor]],
        )
        self._consumer.subscribe(topics, listener=self)
        self._seen: SimpleQueue[Seen] = SimpleQueue()
        self._leaving = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._leaving:
            for records in self._consumer.poll(timeout_ms=500).values():
                for record in records:
                    self._seen.put((record.topic, record.partition, record.offset))

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._ownership.assign(self, [(p.topic, p.partition) for p in assigned])

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._ownership.revoke(self, [(p.topic, p.partition) for p in revoked])

    def poll(self) -> list[Seen]:
        time.sleep(0.005)
        return [self._seen.get() for _ in range(self._seen.qsize())]

    def leave(self) -> list[Seen]:
        self._leaving = True
        self._thread.join()
        self._consumer.close()
        self._ownership.drop(self)
        return self.poll()


class AioMember(ConsumerRebalanceListener):  # type: ignore[misc]  # untyped library
    """All of them share one event loop, which runs whenever one of them is polled."""

    ASSIGNORS: Final = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}
    LOOP: asyncio.AbstractEventLoop

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        assignor: str,
        ownership: Ownership,
        *,
        instance: str | None = None,
    ) -> None:
        self._ownership = ownership

        async def start() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                group_instance_id=instance,
                auto_offset_reset="earliest",
                auto_commit_interval_ms=50,
                metadata_max_age_ms=200,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                partition_assignment_strategy=[self.ASSIGNORS[assignor]],
            )
            consumer.subscribe(topics, listener=self)
            await consumer.start()
            return consumer

        self._consumer = self.LOOP.run_until_complete(start())

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._ownership.assign(self, [(p.topic, p.partition) for p in assigned])

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._ownership.revoke(self, [(p.topic, p.partition) for p in revoked])

    def poll(self) -> list[Seen]:
        polled = self.LOOP.run_until_complete(self._consumer.getmany(timeout_ms=5))
        return [(r.topic, r.partition, r.offset) for records in polled.values() for r in records]

    def leave(self) -> list[Seen]:
        self.LOOP.run_until_complete(self._consumer.stop())
        self._ownership.drop(self)
        return []


def subscription(topics: Iterable[str]) -> bytes:
    """A classic member's metadata, version 1: topics, no user data, no owned partitions.

    Version 0 has no owned partitions; librdkafka as the leader dies of that when it is cooperative.
    """
    names = [topic.encode() for topic in topics]
    listed = b"".join(struct.pack(">h", len(name)) + name for name in names)
    return struct.pack(">hi", 1, len(names)) + listed + struct.pack(">ii", -1, 0)


class RawMember:
    """Joins a group with nothing but the protocol, and can stop without saying so."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], assignor: str) -> None:
        self._client = RawClient(bootstrap)
        self._group = group
        self._topics = topics
        self._assignor = assignor

    def join(self) -> None:
        """Blocks until the group lets it in; the others have to be polled meanwhile."""
        if self._assignor == "consumer":
            self._join_consumer_group()
            return
        asked = self._ask_to_join("")
        joined = self._ask_to_join(asked.member_id)
        assert joined.error_code == 0
        request = SyncGroupRequest(
            self._group,
            joined.generation_id,
            joined.member_id,
            None,
            joined.protocol_type,
            joined.protocol_name,
        )
        # As the leader it hands out nothing at all; the rest will sort that out without it.
        assert self._client.ask("sync_group", 5, request).error_code in (0, 27)

    def _ask_to_join(self, member_id: str) -> JoinGroupResponse:
        request = JoinGroupRequest(
            self._group,
            DYING_SESSION_MS,
            SESSION_MS,
            member_id,
            None,
            "consumer",
            [JoinGroupRequestProtocol(self._assignor, subscription(self._topics))],
        )
        answer: JoinGroupResponse = self._client.ask("join_group", 7, request)
        return answer

    def _join_consumer_group(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            self._group,
            str(uuid.uuid4()),
            0,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=self._topics,
            topic_partitions=(),
        )
        assert self._client.ask("consumer_group_heartbeat", 1, request).error_code == 0

    def crash(self) -> None:
        self._client.close()


class ConsumerMember:
    """A KIP-848 member that sends what it is told to."""

    def __init__(self, raw: RawClient, group: str) -> None:
        self._raw = raw
        raw.ask("find_coordinator", 2, FindCoordinatorRequest(group, 0))
        self.request = ConsumerGroupHeartbeatRequest(
            group, str(uuid.uuid4()), 0, rebalance_timeout_ms=30_000, topic_partitions=()
        )

    def heartbeat(self, **fields: Any) -> Any:
        return self._raw.ask("consumer_group_heartbeat", 1, self.request._replace(**fields))
