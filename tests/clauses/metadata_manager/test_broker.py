"""The broker: segments in a store, their catalogue in a topic

A broker with tiered storage, a directory or an S3 server as the store.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from ottla import Admin, EmbeddedBroker, Producer, ProducerRecord, TopicPartition, errors
from ottla.tier.catalogue import (
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
    decode_event,
)
from tests.clauses.metadata_manager.managers import PATIENCE, Managers, open_topic, until
from tests.support.raw_client import RawClient, records_of
from tests.support.s3 import moto_server, rsm_config
from tests.support.tiered_broker import TIERED, consume, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ottla import TopicDescription
    from ottla.tier.catalogue import MetadataEvent

METADATA_TOPIC: Final = "__remote_log_metadata"
REPLICA_NOT_AVAILABLE: Final = 9
SEGMENT: Final = 1000  # records, 1000 bytes each
METADATA_PARTITIONS: Final = 3


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tier")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[EmbeddedBroker]:
    """With tiered storage, and in a hurry."""
    with _tiered(directory) as running:
        yield running


@contextmanager
def _tiered(directory: Path, config: Mapping[str, str] | None = None) -> Iterator[EmbeddedBroker]:
    chosen = {**settings(directory / "store"), **(config or {})}
    with EmbeddedBroker(directory / "data", config=chosen) as running:
        yield running


async def test_the_setting_chooses_the_manager() -> None:
    """The topic-backed manager is chosen by the configuration, unless `in_memory` is set.

    Differs: `remote.log.storage.system.enable` with `rsm.config.url` chooses it; a catalogue in
    memory would lose segments with the process, so a broker offers none.
    """
    async with EmbeddedBroker() as plain, Admin(plain.bootstrap) as admin:
        assert await admin.list_topics(internal=True) == []
    with pytest.raises(Exception, match=r"rsm\.config\.url"):
        EmbeddedBroker(config={"remote.log.storage.system.enable": "true"}).start()


async def test_the_broker_makes_the_topic() -> None:
    """A broker makes `__remote_log_metadata`, with delete cleanup and infinite retention.

    Differs: it has 50 partitions, as in the document, and 1 replica instead of 3, as long as
    brokers of Ottla have no followers.
    """
    config = {"remote.log.storage.system.enable": "true", "rsm.config.url": "memory:"}
    async with EmbeddedBroker(config=config) as made, Admin(made.bootstrap) as admin:
        found = await _described(admin, METADATA_TOPIC)
    configs = {one.name: one.value for one in found.configs or ()}
    assert [len(one.replicas) for one in found.partitions] == [1] * 50
    assert configs["cleanup.policy"] == "delete"
    assert configs["retention.ms"] == "-1"
    assert configs["remote.storage.enable"] == "false"


async def test_the_number_of_partitions_is_a_setting(broker: EmbeddedBroker) -> None:
    """`rlmm.config.remote.log.metadata.topic.num.partitions` chooses another number."""
    async with Admin(broker.bootstrap) as admin:
        found = await _described(admin, METADATA_TOPIC)
    assert len(found.partitions) == METADATA_PARTITIONS


async def test_a_copied_segment_is_two_events(
    broker: EmbeddedBroker, topic: str, directory: Path
) -> None:
    """A copy is told when it starts and when it has finished; then the segment can be read."""
    name = await _cold_topic(broker, topic)
    events = _events_of(broker, name)
    first = events[0]
    assert isinstance(first, RemoteLogSegmentMetadata)
    assert (first.start_offset, first.state) == (0, SegmentState.COPY_SEGMENT_STARTED)
    finished = [
        one
        for one in events
        if isinstance(one, RemoteLogSegmentMetadataUpdate) and one.id == first.id
    ]
    assert [one.state for one in finished] == [SegmentState.COPY_SEGMENT_FINISHED]
    assert list((directory / "store").rglob(f"{name}-*/0/{0:020}-*.log"))


async def test_consumers_read_what_is_in_the_store_alone(
    broker: EmbeddedBroker, topic: str
) -> None:
    """The catalogue is what a fetch of old offsets finds its segment by."""
    name = await _cold_topic(broker, topic)
    found = await asyncio.to_thread(consume, broker.bootstrap, name, 3 * SEGMENT)
    assert found == [_value(number) for number in range(3 * SEGMENT)]


async def test_another_manager_reads_the_brokers_catalogue(
    broker: EmbeddedBroker, topic: str, managers: Managers
) -> None:
    """Whoever consumes the topic has the same catalogue."""
    name = await _cold_topic(broker, topic)
    first = _events_of(broker, name)[0]
    assert isinstance(first, RemoteLogSegmentMetadata)
    async with AsyncExitStack() as stack:
        log = await open_topic(broker.bootstrap, METADATA_TOPIC)
        stack.push_async_callback(log.close)
        manager = await managers.start(log)
        stack.push_async_callback(manager.close)
        found = manager.remote_log_segment_metadata(first.tip, 0, 0)
        assert found is not None
        assert found.id == first.id


async def test_the_broker_reads_its_topic_without_a_group(
    broker: EmbeddedBroker, topic: str
) -> None:
    """The broker commits no offsets, and is in no group."""
    await _cold_topic(broker, topic)
    async with Admin(broker.bootstrap) as admin:
        for group in await admin.list_groups():
            committed = await admin.list_group_offsets(group.id)
            assert METADATA_TOPIC not in {one.topic for one in committed}


async def test_deleting_a_topic_is_told_and_its_objects_go(
    broker: EmbeddedBroker, topic: str, directory: Path
) -> None:
    """A partition's deletion is marked, started and finished in the log."""
    name = await _cold_topic(broker, topic)
    broker.delete_topic(name)

    def states() -> list[PartitionDeleteState]:
        events = _events_of(broker, name)
        return [one.state for one in events if isinstance(one, RemotePartitionDeleteMetadata)]

    await until(lambda: states() == list(PartitionDeleteState))
    left = [path for path in (directory / "store").rglob("*.log") if name in str(path)]
    assert left == []


async def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    """After a restart the catalogue is recovered, from its snapshot and the topic."""
    with _tiered(tmp_path) as running:
        name = await _cold_topic(running, "history")
    assert (tmp_path / "data" / "remote-log-metadata" / "snapshot").exists()
    with _tiered(tmp_path) as running:
        found = await asyncio.to_thread(consume, running.bootstrap, name, 3 * SEGMENT)
        assert len(found) == 3 * SEGMENT
    (tmp_path / "data" / "remote-log-metadata" / "snapshot").unlink()
    with _tiered(tmp_path) as running:
        found = await asyncio.to_thread(consume, running.bootstrap, name, 3 * SEGMENT)
        assert len(found) == 3 * SEGMENT


async def test_before_the_catalogue_is_read_nothing_is_called_missing(tmp_path: Path) -> None:
    """A broker starts on the placeholder: old offsets are "not available" until it has read.

    The second broker advertises an address at which nobody listens, so it cannot read its topic.
    """
    with _tiered(tmp_path) as running:
        name = await _cold_topic(running, "history")
    astray = {"advertised.listeners": "PLAINTEXT://127.0.0.1:1"}
    with _tiered(tmp_path, astray) as running, RawClient(running.bootstrap) as client:
        assert client.fetch_one(name, 0).error_code == REPLICA_NOT_AVAILABLE
        assert client.fetch_one(name, 3 * SEGMENT).error_code == 0  # the end is local
    with _tiered(tmp_path) as running:
        assert len(await asyncio.to_thread(consume, running.bootstrap, name, SEGMENT)) == SEGMENT


@pytest.mark.long
async def test_the_store_may_be_s3(tmp_path: Path) -> None:
    """The catalogue does not care where segments are: here in a bucket."""
    with moto_server() as endpoint, _tiered(tmp_path, rsm_config(endpoint, "clauses")) as running:
        name = await _cold_topic(running, "history")
        found = await asyncio.to_thread(consume, running.bootstrap, name, 3 * SEGMENT)
        assert found == [_value(number) for number in range(3 * SEGMENT)]


async def _cold_topic(broker: EmbeddedBroker, name: str) -> str:
    """A tiered topic of three segments, the first of which is in the store alone."""
    tiered = f"{name}-tiered"
    broker.create_topic(tiered, configs=TIERED)
    async with Producer(broker.bootstrap) as producer:
        for start in range(0, 3 * SEGMENT, 50):
            records = [ProducerRecord(_value(number)) for number in range(start, start + 50)]
            await producer.send_many(tiered, records)
    async with Admin(broker.bootstrap) as admin, asyncio.timeout(PATIENCE):
        while await _local_start(admin, tiered) == 0:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.02)
    return tiered


async def _local_start(admin: Admin, topic: str) -> int:
    found = await admin.list_offsets([topic], "earliest-local")
    return found[TopicPartition(topic, 0)].offset


async def _described(admin: Admin, topic: str) -> TopicDescription:
    """The topic, once it is there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                [found] = await admin.describe_topics([topic], configs=True)
            except errors.UnknownTopic:
                continue
            return found


def _value(number: int) -> bytes:
    return b"%010d" % number * 100


def _events_of(broker: EmbeddedBroker, topic: str) -> list[MetadataEvent]:
    """What the metadata topic says of one topic, in order."""
    found: list[MetadataEvent] = []
    with RawClient(broker.bootstrap) as client:
        for number in range(METADATA_PARTITIONS):
            data = client.fetch_one(METADATA_TOPIC, 0, partition=number)
            found += [decode_event(record.value or b"") for record in records_of(data)]
    return [one for one in found if _topic_of(one) == topic]


def _topic_of(event: MetadataEvent) -> str:
    tip = event.tip if isinstance(event, RemotePartitionDeleteMetadata) else event.id.tip
    return tip.topic
