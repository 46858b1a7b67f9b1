"""Zip bombs in produce requests: refused, and no dearer than the limit on what a block may grow to.

A broker that looks inside a batch opens it: on a compacted topic, for the keys; where the topic's
compression is not the producer's; and where records are checked, as the first batch of a connection
always is. What takes long is opened by a worker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import DECOMPRESSION_HARD_LIMIT, Codec
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.faults_broker import BrokerProcess
from tests.support.faults_client import PlainClient

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCE, CREATE_TOPICS = 0, 19
MIB: Final = 1024 * 1024
SIZE: Final = DECOMPRESSION_HARD_LIMIT + 160 * MIB
TOPICS: Final = {
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "uncompressed"},
    "sampled": {},
    "all": {"ottla.validate.records": "all"},
}

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the kernel does not tell a process's peak"
)


def create(client: PlainClient, name: str, configs: dict[str, str]) -> None:
    # Snappy cannot do better than one in 22: its bomb must get past the size of a message.
    wanted = {"max.message.bytes": str(16 * MIB), **configs}
    pairs = tuple(CreatableTopicConfig(key, value) for key, value in wanted.items())
    topic = CreatableTopic(name, 1, -1, configs=pairs)
    answer = client.ask(CREATE_TOPICS, 5, CreateTopicsRequest((topic,)))
    assert answer.topics[0].error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("bombs")) as broker:
        with PlainClient(broker.port) as client:
            for name, configs in TOPICS.items():
                create(client, name, configs)
        yield broker


@pytest.fixture(scope="module", params=[Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def bomb(request: pytest.FixtureRequest) -> bytearray:
    builder = BatchBuilder(codec=request.param)
    builder.append(bytes(SIZE), key=b"key", timestamp=1_700_000_000_000)
    return builder.build()


@pytest.mark.parametrize("topic", TOPICS)
def test_case_24_a_bomb_is_refused_and_costs_no_more_than_the_limit(
    broker: BrokerProcess, bomb: bytearray, topic: str
) -> None:
    data = TopicProduceData(topic, partition_data=(PartitionProduceData(0, bomb),))
    with PlainClient(broker.port) as client:
        before = broker.peak_bytes()
        answer = client.ask(PRODUCE, 9, ProduceRequest(None, -1, 10_000, (data,)))
        grown = broker.peak_bytes() - before
    produced = answer.responses[0].partition_responses[0]
    assert produced.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produced.base_offset == -1
    # The request itself, and beside it what a decoder keeps of its own.
    assert grown < DECOMPRESSION_HARD_LIMIT + len(bomb) + 32 * MIB, f"{grown // MIB} MiB"
