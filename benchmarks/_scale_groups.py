"""What it costs the broker that all members of a large KIP-848 group join at once."""

from __future__ import annotations

import statistics
import time
import uuid
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks._harness import Row
from benchmarks._ottla import OttlaProcess
from ottla.wire.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from tests.support.raw_client import RawClient

MEMBERS: Final = 300
TOPICS, PARTITIONS = 50, 100
ROUNDS: Final = 3
LIMIT_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 60.0
API, VERSION = "consumer_group_heartbeat", 1


class Joined(NamedTuple):
    cpu_seconds: float
    """Of the whole broker process: its loop, and the threads that sync."""
    seconds: float
    heartbeats: int


class Member:
    """Gives up what it is told to at once, and says so with its next heartbeat."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.client = RawClient(bootstrap)
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.has_news = True
        self._group = group
        self._id = str(uuid.uuid4())

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))

    def send(self, topics: list[str]) -> None:
        joins = self.epoch == 0
        owned = [RequestTopicPartitions(*item) for item in self.owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            self._group,
            self._id,
            self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=topics if joins else None,
            topic_partitions=owned if self.has_news else None,
        )
        self.client.send(API, VERSION, request)

    def receive(self) -> None:
        _, answer = self.client.receive(API, VERSION)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        self.has_news = answer.assignment is not None
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {
                topic.topic_id: list(topic.partitions)
                for topic in answer.assignment.topic_partitions
            }


def join_at_once(broker: OttlaProcess, group: str, members: int, topics: list[str]) -> Joined:
    """From the first join to the heartbeat after which every partition has an owner."""
    with ExitStack() as stack:
        crowd = [Member(broker.bootstrap, group) for _ in range(members)]
        for member in crowd:
            stack.callback(member.client.close)
        find = FindCoordinatorRequest(coordinator_keys=[group])
        crowd[0].client.ask("find_coordinator", 4, find)
        began, cpu = time.monotonic(), broker.cpu_seconds()
        sent = 0
        while not _is_settled(crowd, len(topics) * PARTITIONS):
            assert time.monotonic() - began < PATIENCE_SECONDS, "the group does not settle"
            for member in crowd:
                member.send(topics)
            for member in crowd:
                member.receive()
            sent += members
        return Joined(broker.cpu_seconds() - cpu, time.monotonic() - began, sent)


def _is_settled(crowd: list[Member], partitions: int) -> bool:
    loads = [member.partitions for member in crowd]
    return (
        sum(loads) == partitions
        and max(loads) - min(loads) <= 1
        and len({member.epoch for member in crowd}) == 1
    )


def group_row() -> Row:
    """The CPU time of the broker, against what it may be."""
    topics = [f"group-{index}" for index in range(TOPICS)]
    with OttlaProcess({}) as broker:
        with RawClient(broker.bootstrap) as client:
            asked = [CreatableTopic(name, PARTITIONS, 1) for name in topics]
            client.ask("create_topics", 7, CreateTopicsRequest(asked, 20_000))
        found = [
            join_at_once(broker, f"crowd-{number}", MEMBERS, topics).cpu_seconds
            for number in range(ROUNDS)
        ]
    seconds = statistics.median(found)
    return Row(
        f"KIP-848: {MEMBERS} members over {TOPICS * PARTITIONS:,} partitions join at once",
        f"{seconds:.2f} s CPU",
        f"{LIMIT_SECONDS:.0f} s allowed",
        seconds / LIMIT_SECONDS,
        (min(found) / LIMIT_SECONDS, max(found) / LIMIT_SECONDS),
        1.0,
        at_most=True,
    )


if __name__ == "__main__":
    print(group_row())
