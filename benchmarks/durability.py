"""What an acknowledgement and a consumed byte cost: Ottla's modes against each other.

    python -m benchmarks.durability [--quick] [--only=TEXT]

One blocking socket sends requests that were encoded before, so that the broker is what is measured.
The journal and mapped files are compared with release 0.1, which synced each log by itself, read
what it sent, and is taken from the history of the checkout. Parts: produce, partitions, large,
consume.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks._harness import Row, part, report, until_clear
from benchmarks._ottla import OttlaProcess, release_source
from ottla.wire.batch import iter_batches
from ottla.wire.builder import BatchBuilder
from ottla.wire.messages import read_response, request_parts
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

QUICK: Final = "--quick" in sys.argv
ROUNDS: Final = 2 if QUICK else 5
MAX_ROUNDS: Final = 2 if QUICK else 11
SHARE: Final = 0.1 if QUICK else 1.0  # of the requests
PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
PATIENCE: Final = 120.0
TOPIC: Final = "records"
RECORD: Final = b"v" * 500
FETCH_BYTES: Final = (50 if QUICK else 500) * 1024**2
PARTITION_BYTES: Final = 1024**2
JOURNAL: Final = {"ottla.flush.mode": "journal"}


@dataclass(frozen=True)
class Cost:
    """One measurement of a stream of requests."""

    per_second: float
    cpu_us: float  # of the broker, for each request or KiB
    p50: float
    p99: float


class Client:
    """One socket; answers come in order."""

    def __init__(self, broker: OttlaProcess) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._memory = memoryview(bytearray(16 * 1024**2))

    def close(self) -> None:
        self._socket.close()

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> memoryview:
        """The next answer; valid until the one after it."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        left = self._memory[:size]
        while left:
            read = self._socket.recv_into(left)
            assert read, "the broker has closed the connection"
            left = left[read:]
        return self._memory[:size]


def main() -> None:
    rows = part("produce", produce_rows)
    rows += part("partitions", partition_rows)
    rows += part("large", large_rows)
    rows += part("consume", consume_rows)
    report("durability: the modes against each other", rows, ("uvloop",))


# -- produce --------------------------------------------------------------------------------------


def produce_rows() -> list[Row]:
    """Six partitions: 16 KiB each with five requests in flight, one record with one."""
    full: tuple[list[Cost], list[Cost]] = ([], [])
    single: tuple[list[Cost], list[Cost]] = ([], [])
    large, small = produce_request(6, 32), produce_request(6, 1)

    def rows() -> list[Row]:
        what = "6 x 16 KiB, 5 in flight, journal, peer release 0.1"
        return [
            _row(f"requests, {what}", full, "per_second", 1.7),
            _row(f"processor time a request, {what}", full, "cpu_us", 0.45, at_most=True),
            _row(f"p99 under full load, {what}", full, "p99", 1.0, at_most=True),
            _row(
                "p50, 6 x 1 record, 1 in flight, journal, peer release 0.1",
                single,
                "p50",
                0.4,
                at_most=True,
            ),
        ]

    with beside_release(partitions=6) as pair:

        def one_round(_: int) -> None:
            for index, broker in enumerate(pair):
                full[index].append(stream(broker, large, int(10_000 * SHARE), 5))
                single[index].append(stream(broker, small, int(5_000 * SHARE), 1))

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def partition_rows() -> list[Row]:
    """One record to each of many partitions in a request: as many logs are dirty."""
    return [
        *dirty_rows(1, 10_000, 1.35),
        *dirty_rows(100, 1_000, 3.0),
        *dirty_rows(1_000, 200, 2.0),
    ]


def dirty_rows(partitions: int, requests: int, target: float) -> list[Row]:
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    what = f"requests, {partitions:,} x 1 record, 5 in flight, journal, peer release 0.1"
    request = produce_request(partitions, 1)
    with beside_release(partitions=partitions) as pair:
        for broker in pair:
            stream(broker, request, 5, 1)  # opens the logs

        def one_round(_: int) -> None:
            for index, broker in enumerate(pair):
                costs[index].append(stream(broker, request, max(20, int(requests * SHARE)), 5))

        return until_clear(
            one_round, lambda: [_row(what, costs, "per_second", target)], ROUNDS, MAX_ROUNDS
        )


def large_rows() -> list[Row]:
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    request = produce_request(1, 1_900)

    def rows() -> list[Row]:
        return [
            _row(
                "requests, 1 x 1 MiB, 5 in flight, journal, peer release 0.1",
                costs,
                "per_second",
                0.98,
            )
        ]

    with beside_release(partitions=1) as pair:

        def one_round(_: int) -> None:
            for index, broker in enumerate(pair):
                costs[index].append(stream(broker, request, int(1_000 * SHARE), 5))

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def stream(broker: OttlaProcess, request: bytes, count: int, in_flight: int) -> Cost:
    """Send a request again and again; each has to be acknowledged."""
    client = Client(broker)
    sent: deque[float] = deque()
    seconds = []
    cpu, began = broker.cpu_seconds(), time.perf_counter()
    for number in range(count + in_flight):
        if number >= in_flight:
            answer = client.receive()
            seconds.append(time.perf_counter() - sent.popleft())
        if number < count:
            sent.append(time.perf_counter())
            client.send(request)
    took, used = time.perf_counter() - began, broker.cpu_seconds() - cpu
    _, last = read_response(PRODUCE, 9, answer)
    assert not any(row.error_code for row in last.responses[0].partition_responses)
    client.close()
    return _cost(seconds, count, took, used)


def produce_request(partitions: int, records: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(RECORD, timestamp=time.time_ns() // 1_000_000)
    batch = bytes(builder.build())
    data = [PartitionProduceData(index, batch) for index in range(partitions)]
    body = ProduceRequest(None, -1, 60_000, [TopicProduceData(TOPIC, partition_data=data)])
    return b"".join(request_parts(PRODUCE, 9, 1, "benchmark", body))


# -- consume --------------------------------------------------------------------------------------


def consume_rows() -> list[Row]:
    """A whole topic of six partitions from the page cache."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])

    def rows() -> list[Row]:
        return [
            _row("MiB consumed, mapped files, peer release 0.1", costs, "per_second", 2.2),
            _row(
                "processor time a KiB consumed, mapped files, peer release 0.1",
                costs,
                "cpu_us",
                0.4,
                at_most=True,
            ),
        ]

    with beside_release(partitions=6) as pair:
        request = produce_request(6, 32)
        plans = []
        for broker in pair:
            stream(broker, request, FETCH_BYTES // len(request), 5)
            plans.append(fetch_requests(broker, 6))

        def one_round(_: int) -> None:
            for index, broker in enumerate(pair):
                costs[index].append(replay(broker, plans[index]))

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def fetch_requests(broker: OttlaProcess, partitions: int) -> list[bytes]:
    """The requests of a consumer that reads everything."""
    client = Client(broker)
    offsets = dict.fromkeys(range(partitions), 0)
    found = []
    while offsets:
        wanted = [
            FetchPartition(index, -1, offset, partition_max_bytes=PARTITION_BYTES)
            for index, offset in offsets.items()
        ]
        topic = FetchTopic(TOPIC, partitions=wanted)
        body = FetchRequest(min_bytes=1, max_bytes=50 * 1024**2, session_epoch=-1, topics=[topic])
        request = b"".join(request_parts(FETCH, 12, 1, "benchmark", body))
        client.send(request)
        _, answer = read_response(FETCH, 12, client.receive())
        for data in answer.responses[0].partitions:
            assert data.error_code == 0
            for batch in iter_batches(memoryview(data.records)):
                offsets[data.partition_index] = batch.next_offset
            if offsets[data.partition_index] == data.high_watermark:
                del offsets[data.partition_index]
        found.append(request)
    client.close()
    return found


def replay(broker: OttlaProcess, requests: Sequence[bytes]) -> Cost:
    client = Client(broker)
    size = 0
    seconds = []
    cpu, began = broker.cpu_seconds(), time.perf_counter()
    for request in requests:
        start = time.perf_counter()
        client.send(request)
        size += len(client.receive())
        seconds.append(time.perf_counter() - start)
    took, used = time.perf_counter() - began, broker.cpu_seconds() - cpu
    client.close()
    cost = _cost(seconds, size // 1024, took, used)
    return Cost(cost.per_second / 1024, cost.cpu_us, cost.p50, cost.p99)


# -- helpers --------------------------------------------------------------------------------------


@contextmanager
def beside_release(partitions: int) -> Iterator[tuple[OttlaProcess, OttlaProcess]]:
    """The journal, and release 0.1 with its default, a sync for each log."""
    with release_source() as source:
        pair = OttlaProcess(JOURNAL), OttlaProcess(source=source)
        with topics(*pair, partitions=partitions) as started:
            yield started


@contextmanager
def topics(
    first: OttlaProcess, second: OttlaProcess, *, partitions: int
) -> Iterator[tuple[OttlaProcess, OttlaProcess]]:
    """Two that are up together, each with an empty topic."""
    with first, second:
        for broker in (first, second):
            client = Client(broker)
            body = CreateTopicsRequest([CreatableTopic(TOPIC, partitions, -1)], 60_000)
            client.send(b"".join(request_parts(CREATE_TOPICS, 5, 1, "benchmark", body)))
            _, answer = read_response(CREATE_TOPICS, 5, client.receive())
            assert answer.topics[0].error_code == 0
            client.close()
        yield first, second


def _cost(seconds: list[float], count: int, took: float, used: float) -> Cost:
    seconds.sort()
    middle, late = (seconds[int(len(seconds) * share)] for share in (0.5, 0.99))
    return Cost(count / took, used / count * 1e6, middle, late)


SHOWN: Final[dict[str, Callable[[float], str]]] = {
    "per_second": lambda value: f"{value:,.0f} a second",
    "cpu_us": lambda value: f"{value:.2f} us",
    "p50": lambda value: f"{value * 1000:.2f} ms",
    "p99": lambda value: f"{value * 1000:.2f} ms",
}


def _row(
    what: str,
    costs: tuple[list[Cost], list[Cost]],
    figure: str,
    target: float | None,
    *,
    at_most: bool = False,
) -> Row:
    ours, theirs = ([getattr(cost, figure) for cost in each] for each in costs)
    ratios = [own / peer for own, peer in zip(ours, theirs, strict=True)]
    own, peer = statistics.median(ours), statistics.median(theirs)
    spread = (min(ratios), max(ratios))
    shown = SHOWN[figure](own), SHOWN[figure](peer)
    return Row(what, *shown, own / peer, spread, target, at_most=at_most)


if __name__ == "__main__":
    main()
