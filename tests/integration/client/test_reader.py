"""The Reader with stand-ins for brokers: what cannot be provoked with real ones at will."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientError,
    ClientFault,
    KafkaError,
)
from ottla.client.reader import decode as reader_decode
from ottla.client.reader.decode import decode
from ottla.client.reader.reader import Reader
from ottla.client.reader.rows import Chunk
from ottla.client.reader.types import CorruptRecords, DataLost, Timestamp
from ottla.wire.arrow import batches_to_arrow
from ottla.wire.builder import build_control_batch
from ottla.wire.compression import Codec
from ottla.wire.error_codes import ErrorCode
from ottla.wire.messages import message
from ottla.wire.records import ControlType, Record
from ottla.wire.schema import API_NAMES
from ottla.wire.schema.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.build import build_batch
from tests.support.client_broker import Instead, ScriptedBroker, describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE = 20.0
NOW = 1_700_000_000_000
BATCH = 10
END = 50


def batch_at(base: int, **options: Any) -> bytearray:
    records = [Record(n, NOW + n, None, b"%d" % n) for n in range(base, base + BATCH)]
    return build_batch(records, base_offset=base, **options)


def fetched(request: FetchRequest, code: int = 0, records: bytes = b"") -> FetchResponse:
    """The same for every partition that is asked for."""
    [topic] = request.topics
    numbers = [one.partition for one in topic.partitions]
    parts = [PartitionData(n, code, END, END, 0, records=records) for n in numbers]
    return FetchResponse(responses=[FetchableTopicResponse(topic.topic, topic.topic_id, parts)])


def serve(request: FetchRequest) -> FetchResponse:
    """One batch, the one with the asked offset."""
    offset = request.topics[0].partitions[0].fetch_offset
    return fetched(request, records=bytes(batch_at(offset - offset % BATCH)))


def refuse(code: ErrorCode, request: FetchRequest) -> FetchResponse:
    return fetched(request, code)


def find(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The log is from 0 to END."""
    [topic] = request.topics
    found = [
        ListOffsetsPartitionResponse(one.partition_index, 0, -1, END if one.timestamp == -1 else 0)
        for one in topic.partitions
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic.name, found)])


@pytest.fixture
async def brokers() -> AsyncIterator[dict[int, ScriptedBroker]]:
    """Two brokers that serve the log; the first leads."""
    async with AsyncExitStack() as stack:
        found = {node: await stack.enter_async_context(ScriptedBroker()) for node in (1, 2)}
        describe(found, {"t": [1]})
        for broker in found.values():
            broker.script(FetchRequest, serve)
            broker.script(ListOffsetsRequest, find)
        yield found


async def values(reader: Reader) -> list[bytes]:
    async with asyncio.timeout(PATIENCE):
        return [one async for batch in reader for one in batch.column("value").to_pylist()]


EVERYTHING = [b"%d" % n for n in range(END)]


async def test_a_leader_that_moves_is_followed(brokers: dict[int, ScriptedBroker]) -> None:
    def moved(request: FetchRequest) -> FetchResponse:
        describe(brokers, {"t": [2]})
        return refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, request)

    brokers[1].script(FetchRequest, serve, serve, moved)
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        assert await values(reader) == EVERYTHING
    assert len(brokers[1].asked(FetchRequest)) == 3
    assert len(brokers[2].asked(FetchRequest)) == 3


@pytest.mark.parametrize("where", ["_fetch", "_decoder"])
async def test_an_unforeseen_error_is_told_once(
    brokers: dict[int, ScriptedBroker], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        first = await anext(reader)
        pump = reader._pump
        with monkeypatch.context() as broken:
            broken.setattr(pump, where, lambda *_, **__: 1 / 0)
            await reader.seek(BATCH)
            with pytest.raises(ClientFault, match="unexpected ZeroDivisionError"):
                await anext(reader)
        assert [*first.column("value").to_pylist(), *await values(reader)] == EVERYTHING


@pytest.mark.parametrize(
    "accident",
    [
        Instead.HANG_UP,
        Instead.GARBAGE,
        partial(refuse, ErrorCode.KAFKA_STORAGE_ERROR),
        partial(refuse, ErrorCode.UNKNOWN_TOPIC_ID),
        partial(refuse, ErrorCode.OFFSET_NOT_AVAILABLE),
        lambda request: FetchResponse(error_code=ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_accidents_pass(brokers: dict[int, ScriptedBroker], accident: object) -> None:
    brokers[1].script(FetchRequest, serve, accident, serve, accident, serve)
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        assert await values(reader) == EVERYTHING


async def test_what_lasts_is_raised_and_the_reader_goes_on_after_it(
    brokers: dict[int, ScriptedBroker],
) -> None:
    brokers[1].script(FetchRequest, serve, partial(refuse, ErrorCode.KAFKA_STORAGE_ERROR))
    async with Reader(brokers[1].bootstrap, "t", stop="latest", api_timeout=0.3) as reader:
        found = (await anext(reader)).column("value").to_pylist()
        for _ in range(2):
            with pytest.raises(KafkaError, match="read t-0 at offset 10: KAFKA_STORAGE_ERROR"):
                await anext(reader)
        brokers[1].script(FetchRequest, serve)
        assert found + await values(reader) == EVERYTHING


async def test_a_silent_leader_does_not_hold_up_the_others(
    brokers: dict[int, ScriptedBroker],
) -> None:
    describe(brokers, {"t": [1, 2]})
    brokers[1].script(FetchRequest, Instead.SILENCE)
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        found = [one for _ in range(5) for one in (await anext(reader)).column("value").to_pylist()]
        assert found == EVERYTHING
        assert reader.positions == {0: 0, 1: END}


async def test_a_seek_leaves_a_failure_behind(brokers: dict[int, ScriptedBroker]) -> None:
    def gone(request: FetchRequest) -> FetchResponse:
        lost = request.topics[0].partitions[0].fetch_offset < 30
        return refuse(ErrorCode.OFFSET_OUT_OF_RANGE, request) if lost else serve(request)

    brokers[1].script(FetchRequest, gone)
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        with pytest.raises(DataLost):
            await anext(reader)
        # It has asked once more, and failed again, before anyone seeks.
        await brokers[1].until(lambda: len(brokers[1].asked(FetchRequest)) == 2)
        await reader.seek(30)
        assert await values(reader) == EVERYTHING[30:]


async def test_a_start_beyond_the_end_is_lost_with_a_stop_too(
    brokers: dict[int, ScriptedBroker],
) -> None:
    def within(request: FetchRequest) -> FetchResponse:
        beyond = request.topics[0].partitions[0].fetch_offset > END
        return refuse(ErrorCode.OFFSET_OUT_OF_RANGE, request) if beyond else serve(request)

    brokers[1].script(FetchRequest, within)
    where = brokers[1].bootstrap
    async with Reader(where, "t", start={0: END + 1}, stop="latest") as reader:
        for _ in range(2):
            with pytest.raises(DataLost, match="at offset 51"):
                await values(reader)
        await reader.seek(END)
        assert await values(reader) == []
        await reader.seek(END + 5)
        with pytest.raises(DataLost, match="at offset 55"):
            await reader.read_many()
    async with Reader(where, "t", start=999, stop="latest", on_data_loss="earliest") as reader:
        assert await values(reader) == EVERYTHING
    async with Reader(where, "t", start=999, stop="latest", on_data_loss="latest") as reader:
        assert await values(reader) == []
    async with Reader(where, "t", start=END, stop="latest") as reader:
        assert await values(reader) == []


async def test_what_will_not_pass_is_raised_at_once(brokers: dict[int, ScriptedBroker]) -> None:
    brokers[1].script(FetchRequest, partial(refuse, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    async with Reader(brokers[1].bootstrap, "t") as reader:
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED; ask for an ACL"):
            await anext(reader)


async def test_no_broker_at_all() -> None:
    with pytest.raises(BrokerUnreachable):
        async with Reader("127.0.0.1:1", "t", api_timeout=0.2):
            pass


async def test_broken_records_are_named_and_can_be_passed(
    brokers: dict[int, ScriptedBroker],
) -> None:
    def broken(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        batch = batch_at(offset)
        if offset == 20:
            batch[-1] ^= 1
        return fetched(request, records=bytes(batch))

    brokers[1].script(FetchRequest, broken)
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        found = [one for _ in range(2) for one in (await anext(reader)).column("value").to_pylist()]
        for _ in range(2):
            with pytest.raises(CorruptRecords, match=r"t-0: batch at offset 20.*seek past"):
                await anext(reader)
        assert reader.positions == {0: 20}
        await reader.seek(30)
        assert found + await values(reader) == EVERYTHING[:20] + EVERYTHING[30:]


async def test_broken_batches_cost_the_answer(brokers: dict[int, ScriptedBroker]) -> None:
    garbage = partial(fetched, records=b"\0" * 200)
    brokers[1].script(FetchRequest, serve, garbage, serve)
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        assert await values(reader) == EVERYTHING


@pytest.mark.parametrize(("fetch", "lookup", "metadata"), [(4, 1, 4), (12, 5, 9), (13, 11, 12)])
async def test_versions_new_and_old(fetch: int, lookup: int, metadata: int) -> None:
    spans = {key: message(key, request=True).versions for key in API_NAMES}
    versions = {**spans, 1: (4, fetch), 2: (1, lookup), 3: (4, metadata)}
    async with ScriptedBroker(versions) as broker:
        describe({1: broker}, {"t": [1]})
        [topic] = broker.metadata.topics
        broker.metadata = broker.metadata._replace(topics=[topic._replace(topic_id=b"i" * 16)])
        broker.script(FetchRequest, serve)
        broker.script(ListOffsetsRequest, find)
        async with Reader(broker.bootstrap, "t", stop="latest") as reader:
            assert await values(reader) == EVERYTHING
        assert ("fetch", fetch) in broker.versions_used
        asked = broker.asked(FetchRequest)[-1].topics[0]
        assert (asked.topic == "t") != (asked.topic_id == b"i" * 16)


async def test_cancelling_at_any_moment_loses_nothing(brokers: dict[int, ScriptedBroker]) -> None:
    found: list[bytes] = []
    async with Reader(brokers[1].bootstrap, "t", stop="latest") as reader:
        for turns in itertools.count():
            task = asyncio.ensure_future(anext(reader))
            for _ in range(turns % 7):
                await asyncio.sleep(0)
            task.cancel()
            try:
                found += (await task).column("value").to_pylist()
            except asyncio.CancelledError:
                continue
            except StopAsyncIteration:
                break
    assert found == EVERYTHING


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"start": -1}, "start: expected 0 or more, got -1"),
        ({"start": "soon"}, "start: expected \"earliest\", .* got 'soon'"),
        ({"stop": Timestamp(-5)}, "stop: expected 0 or more, got -5"),
        ({"start": {0: 1}, "stop": {1: 1}}, "are not the same"),
        ({"start": {0: 1}, "partitions": [0, 1]}, "are not the same"),
        ({"partitions": []}, "partitions: expected at least one"),
        ({"prefetch": 0}, "prefetch: expected 1 or more"),
        ({"max_batch_rows": 0}, "max_batch_rows: expected 1 or more"),
        (
            {"isolation_level": "serial"},
            "isolation_level: expected one of read_uncommitted, read_committed",
        ),
        ({"on_data_loss": "cry"}, "on_data_loss: expected one of"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Reader("127.0.0.1:1", "t", **options)


def test_columns_that_do_not_exist() -> None:
    with pytest.raises(BadArgument, match="got price"):
        Reader("127.0.0.1:1", "t", columns=["value", "price"])


def test_what_is_too_large_for_one_batch_comes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    transactional: dict[str, Any] = {"producer_id": 7, "transactional": True}
    first = batch_at(0, codec=Codec.GZIP, **transactional)
    marker = build_control_batch(
        ControlType.ABORT,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=NOW,
        base_offset=10,
    )
    rest = [batch_at(base, codec=Codec.GZIP, **transactional) for base in (20, 30, 40)]
    chunk = Chunk("t", 0, 0, 45, 45, memoryview(b"".join([first, marker, *rest])), [(7, 0)])
    [whole] = decode(chunk, ["value"], verify_crc=True)
    assert whole.column("value").to_pylist() == [b"%d" % n for n in range(20, 45)]
    monkeypatch.setattr(
        reader_decode, "batches_to_arrow", partial(batches_to_arrow, decompressed_limit=120)
    )
    parts = decode(chunk, ["value"], verify_crc=True)
    assert [part.num_rows for part in parts] == [10, 10, 5]
    assert [one for part in parts for one in part.column("value").to_pylist()] == [
        b"%d" % n for n in range(20, 45)
    ]
    monkeypatch.setattr(
        reader_decode, "batches_to_arrow", partial(batches_to_arrow, decompressed_limit=20)
    )
    with pytest.raises(ClientError, match="t-0: batch at offset 20"):
        decode(chunk, ["value"], verify_crc=True)
