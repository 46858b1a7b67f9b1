"""Kafka's tool and Kafka's own metadata manager on the metadata topic that Ottla keeps."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from ottla.log.checkpoints import encode_id
from ottla.testing.embedded import EmbeddedBroker
from ottla.tier.catalogue.codec import encode_event
from ottla.tier.catalogue.kafka_event_log import KafkaMetadataEventLog, KafkaMetadataEventLogConfig
from ottla.tier.catalogue.segments import (
    MetadataEvent,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from ottla.tier.catalogue.topic_rlmm import TopicBasedRemoteLogMetadataManager
from ottla.wire.builder import BatchBuilder
from tests.support.jvm import QUICK_START, java_command, own_classpath, run, run_tool, why_no_jvm
from tests.support.tiering import DELETING, FINISHED, TIP, TOPIC_ID, becomes, segment

if TYPE_CHECKING:
    from pathlib import Path

METADATA_PARTITIONS: Final = 7
PATIENCE: Final = 60.0

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(why_no_jvm() is not None, reason=str(why_no_jvm())),
]


def test_case_60_kafka_decodes_every_kind_of_event(tmp_path: Path) -> None:
    one = segment(1000, 1999, epochs={2: 1000, 4: 1500}, number=1 << 100, size=65536)
    whole = segment(2000, 2999, number=1 << 101, txn_index_empty=False, custom=bytes(128))
    events: list[MetadataEvent] = [
        one,
        whole,
        *(becomes(one, state, b"\xc0\xff\xee") for state in list(SegmentState)[1:]),
        *(RemotePartitionDeleteMetadata(TIP, state, 7, 5) for state in PartitionDeleteState),
    ]
    builder = BatchBuilder()
    for event in events:
        builder.append(encode_event(event), timestamp=1_700_000_000_000)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(builder.build())
    said = run_tool(
        "kafka-dump-log", "--remote-log-metadata-decoder", "--files", str(log), bootstrap=None
    ).stdout
    lines = [line for line in said.splitlines() if line.startswith("|")]
    payloads = [line.partition("payload: ")[2] for line in lines]
    assert len(payloads) == len(events)
    kinds = [payload.partition("{")[0] for payload in payloads]
    assert kinds == (
        ["RemoteLogSegmentMetadata"] * 2
        + ["RemoteLogSegmentMetadataUpdate"] * 3
        + ["RemotePartitionDeleteMetadata"] * 3
    )
    for payload in payloads:
        assert f"{encode_id(TOPIC_ID)}:clicks-3" in payload
    assert "startOffset=1000, endOffset=1999" in payloads[0]
    assert "{2=1000, 4=1500}" in payloads[0]
    assert "txnIdxEmpty=true" in payloads[0]
    assert "txnIdxEmpty=false" in payloads[1]
    for payload, state in zip(payloads[2:5], list(SegmentState)[1:], strict=True):
        assert state.name in payload
    for payload, deleting in zip(payloads[5:], PartitionDeleteState, strict=True):
        assert deleting.name in payload


async def test_case_60_kafka_and_ottla_share_a_metadata_topic(tmp_path: Path) -> None:
    """Each lists what the other wrote, in every state, where the other's hash has put it."""
    async with AsyncExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker())
        ours = await manager_on(stack, broker, tmp_path / "ours")
        whole, started, going = (
            segment(1000, 1999, epochs={2: 1000, 4: 1500}, number=1 << 100),
            segment(2000, 2999, number=1 << 101),
            segment(0, 999, number=1 << 102),
        )
        for one in (whole, started, going):
            await ours.add_remote_log_segment_metadata(one)
        await ours.update_remote_log_segment_metadata(becomes(whole, FINISHED, b"\xc0\xff\xee"))
        await ours.update_remote_log_segment_metadata(becomes(going, FINISHED, b""))
        await ours.update_remote_log_segment_metadata(becomes(going, DELETING))
        listed = lines_of(ours)

        theirs = [encode_id(UUID(int=1 << number)) for number in (110, 111, 112)]
        said = await asyncio.to_thread(
            kafka_manager,
            broker.bootstrap,
            tmp_path,
            "list",
            *(f"add {one} {n}000 {n}999 4:{n}000" for n, one in enumerate(theirs, 3)),
            *(f"update {one} COPY_SEGMENT_FINISHED 0102" for one in theirs[:2]),
            f"update {theirs[1]} DELETE_SEGMENT_STARTED -",
            f"update {encode_id(going.id.id)} DELETE_SEGMENT_FINISHED -",
            "list",
        )
        assert said[0] == listed
        assert len(said[1]) == len(listed) - 1 + len(theirs)
        async with asyncio.timeout(PATIENCE):
            while lines_of(ours) != said[1]:  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.01)
        assert lines_of(await manager_on(stack, broker, tmp_path / "late")) == said[1]
        found = ours.remote_log_segment_metadata(TIP, 4, 3500)
        assert found is not None
        assert found.custom_metadata == b"\x01\x02"


async def manager_on(
    stack: AsyncExitStack, broker: EmbeddedBroker, directory: Path
) -> TopicBasedRemoteLogMetadataManager:
    """Ready, with every metadata partition."""
    log = await KafkaMetadataEventLog.open(
        KafkaMetadataEventLogConfig(
            broker.bootstrap, partition_count=METADATA_PARTITIONS, replication_factor=1
        )
    )
    stack.push_async_callback(log.close)
    manager = await TopicBasedRemoteLogMetadataManager.start(log, directory, "cluster")
    stack.push_async_callback(manager.close)
    await manager.reconcile_assignment(range(METADATA_PARTITIONS))
    async with asyncio.timeout(PATIENCE):
        while not manager.is_ready(TIP):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.01)
    return manager


def kafka_manager(bootstrap: str, directory: Path, *commands: str) -> list[list[str]]:
    """Its lists; see jvm/RemoteMetadata.java."""
    command = java_command(
        "RemoteMetadata",
        bootstrap,
        str(METADATA_PARTITIONS),
        str(directory),
        encode_id(TIP.topic_id),
        TIP.topic,
        str(TIP.partition),
        classpath=own_classpath(),
        options=QUICK_START,
    )
    done = run(command, "".join(f"{one}\n" for one in commands), timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr
    lists = done.stdout.split("end\n")[:-1]
    return [sorted(one.splitlines()) for one in lists]


def lines_of(manager: TopicBasedRemoteLogMetadataManager) -> list[str]:
    return sorted(map(line_of, manager.list_remote_log_segments(TIP)))


def line_of(one: RemoteLogSegmentMetadata) -> str:
    epochs = "".join(f"{epoch}:{start}," for epoch, start in one.leader_epochs)
    custom = "-" if one.custom_metadata is None else one.custom_metadata.hex()
    fields = (encode_id(one.id.id), one.start_offset, one.end_offset, epochs, one.segment_size)
    return " ".join(map(str, (*fields, one.state.name, custom)))
