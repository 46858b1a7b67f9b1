"""One request of each API that ordinary clients use, in the order in which they do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.wire.builder import BatchBuilder
from ottla.wire.schema.api_versions import ApiVersionsRequest
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.describe_configs import DescribeConfigsRequest
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.find_coordinator import FindCoordinatorRequest
from ottla.wire.schema.init_producer_id import InitProducerIdRequest
from ottla.wire.schema.list_groups import ListGroupsRequest
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.schema.metadata import MetadataRequest
from ottla.wire.schema.offset_fetch import OffsetFetchRequest
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from tests.support.faults_client import PlainClient


def ask_all(client: PlainClient) -> None:
    client.ask(18, 3, ApiVersionsRequest("test", "1"))
    client.ask(19, 5, CreateTopicsRequest((CreatableTopic("orders", 1, -1),)))
    client.ask(3, 9, MetadataRequest(None))
    builder = BatchBuilder()
    builder.append(b"1", timestamp=time.time_ns() // 1_000_000)
    data = TopicProduceData("orders", partition_data=(PartitionProduceData(0, builder.build()),))
    client.ask(0, 9, ProduceRequest(None, -1, 1000, (data,)))
    wanted = FetchTopic("orders", partitions=(FetchPartition(0, partition_max_bytes=1000),))
    client.ask(1, 11, FetchRequest(max_bytes=1000, topics=(wanted,)))
    asked = ListOffsetsTopic("orders", [ListOffsetsPartition(0, -1, -1)])
    client.ask(2, 4, ListOffsetsRequest(-1, 0, [asked]))
    client.ask(10, 2, FindCoordinatorRequest("group", 0))
    client.ask(9, 5, OffsetFetchRequest("group"))
    client.ask(16, 3, ListGroupsRequest())
    client.ask(10, 2, FindCoordinatorRequest("producer", 1))
    client.ask(22, 3, InitProducerIdRequest("producer", 10_000))
    client.ask(32, 2, DescribeConfigsRequest([]))
    client.ask(76, 1, ShareGroupHeartbeatRequest("queue", "m" * 22, 0, None, ["orders"]))
