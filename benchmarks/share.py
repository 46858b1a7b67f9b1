"""Share groups against Apache Kafka, against plain groups, and the machine behind them by itself.

    python -m benchmarks.share [--quick] [--only=TEXT]

librdkafka's share consumer drives both brokers with implicit acknowledgements, by its C interface
(`benchmarks._librdkafka`). Members join first; the clock runs from the first poll until every
record has come, and the lag is checked to be nought at the end. A row whose range is wider than its
distance from the target runs up to `MAX_ROUNDS` rounds. `--quick` reads less. Where there is no JVM
the script says what it skipped. Parts: machine, kafka, plain, members.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import statistics
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Producer

from benchmarks._harness import Row, part, report, skipped, until_clear, wanted
from benchmarks._librdkafka import CONSUMER, Client, ShareMember
from benchmarks._ottla import OttlaProcess
from benchmarks._peers import apache_kafka, why_no_jvm
from ottla import Admin
from ottla.sharing.partition import SharePartition
from ottla.sharing.values import (
    Ack,
    AcknowledgeType,
    DeliverySettings,
    FetchTurn,
    LogBatch,
    PersistedState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.broker import Broker

QUICK: Final = "--quick" in sys.argv
ROUNDS: Final = 2 if QUICK else 5
MAX_ROUNDS: Final = 2 if QUICK else 11
VALUE: Final = b"v" * 1024
RECORDS: Final = 200_000 if QUICK else 500_000
TOPIC: Final = "records"
TARGETS: Final = {1: 1.0, 8: 2.0}  # by members
PATIENCE: Final = 60.0
AS_KAFKA: Final = {"ottla.flush.mode": "os"}

LOG_BATCH: Final = 500
IN_FLIGHT: Final = 1_000_000
BYTES_ALLOWED: Final = 20
# The larger one is the largest that group.share.partition.max.record.locks can be.
WINDOWS: Final = (1_000, 10_000)


class Consumed(NamedTuple):
    """One group that read everything."""

    per_second: float
    cpu_us: float  # of the broker, a record


def main() -> None:
    rows = part("machine", lambda: [memory_row(), growth_row()])
    with ExitStack() as stack:
        ours = stack.enter_context(OttlaProcess(AS_KAFKA))
        kafka = apache_kafka() if wanted("kafka") else None
        if kafka is None:
            skipped("Apache Kafka", str(why_no_jvm() or "not asked for"))
        brokers: list[Broker] = [ours] if kafka is None else [ours, stack.enter_context(kafka)]
        if wanted("kafka", "plain", "members"):
            for broker in brokers:
                fill(broker, RECORDS)
                consume_shared(broker, "warm-up", RECORDS, 1)
        if len(brokers) > 1:
            rows += part("kafka", lambda: peer_rows(brokers))
        rows += part("plain", lambda: plain_rows(ours))
        rows += part("members", lambda: members_rows(ours))
    report("share groups", rows, ("confluent-kafka", "uvloop"))
    print(f"  load average {os.getloadavg()[0]:.1f}")


# -- end to end -----------------------------------------------------------------------------------


def peer_rows(brokers: Sequence[Broker]) -> list[Row]:
    """One member, and eight, through ours and through Kafka."""
    rates: dict[int, tuple[list[float], list[float]]] = {members: ([], []) for members in TARGETS}

    def rows() -> list[Row]:
        what = "share consumption 1 KiB, {} member(s), 1 partition, peer Apache Kafka"
        return [_row(what.format(n), *rates[n], target) for n, target in TARGETS.items()]

    def one_round(turn: int) -> None:
        for members, found in rates.items():
            for index, broker in enumerate(brokers):
                group = f"shared-{members}-{turn}"
                found[index].append(consume_shared(broker, group, RECORDS, members).per_second)

    return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def plain_rows(broker: Broker) -> list[Row]:
    shared: list[float] = []
    plain: list[float] = []

    def rows() -> list[Row]:
        return [_row("share consumption, peer a plain consumer", shared, plain, 0.7)]

    def one_round(turn: int) -> None:
        with Client(CONSUMER, {"bootstrap.servers": broker.bootstrap}) as consumer:
            plain.append(RECORDS / consumer.consume(TOPIC, 1, RECORDS, len(VALUE)))
        shared.append(consume_shared(broker, f"queue-{turn}", RECORDS, 1).per_second)

    return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def members_rows(broker: OttlaProcess) -> list[Row]:
    """What the broker spends on members that wait for each other."""
    one: list[float] = []
    eight: list[float] = []

    def rows() -> list[Row]:
        ratios = [many / single for many, single in zip(eight, one, strict=True)]
        return [
            Row(
                "share consumption, CPU of the broker, 8 members, peer 1 member",
                f"{statistics.median(eight):.2f} us a record",
                f"{statistics.median(one):.2f} us a record",
                statistics.median(ratios),
                (min(ratios), max(ratios)),
                1.5,
                at_most=True,
            )
        ]

    def one_round(turn: int) -> None:
        for members, costs in ((1, one), (8, eight)):
            group = f"costs-{members}-{turn}"
            costs.append(consume_shared(broker, group, RECORDS, members).cpu_us)

    return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def fill(broker: Broker, records: int) -> None:
    """The topic, of one partition, with so many records in the batches a default producer makes."""

    async def create() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic(TOPIC)

    asyncio.run(create())
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 2_000_000}
    )
    for _ in range(records):
        producer.produce(TOPIC, VALUE)
    assert producer.flush(120) == 0


def consume_shared(broker: Broker, group: str, records: int, members: int) -> Consumed:
    """All members together, from their first poll until all is acknowledged."""
    start_at_nought(broker.bootstrap, group, [(TOPIC, 0)])
    consumers = [ShareMember(broker.bootstrap, group, TOPIC) for _ in range(members)]
    asyncio.run(_all_assigned(broker.bootstrap, group, members))
    seen = [0] * members

    def work(index: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while sum(seen) < records:
            assert time.monotonic() < deadline, f"{sum(seen)} of {records} records came"
            seen[index] += consumers[index].poll(0.1)
        consumers[index].commit()

    with ThreadPoolExecutor(members) as pool:
        cpu, began = broker.cpu_seconds(), time.perf_counter()
        working = [pool.submit(work, index) for index in range(members)]
        for one in working:
            one.result()
        seconds, used = time.perf_counter() - began, broker.cpu_seconds() - cpu
    for consumer in consumers:
        consumer.close()
    asyncio.run(_nothing_left(broker.bootstrap, group))
    return Consumed(records / seconds, used / records * 1e6)


def start_at_nought(bootstrap: str, group: str, partitions: Iterable[tuple[str, int]]) -> None:
    """Gives the group its state before it has members: they are assigned as they join."""
    asyncio.run(_start_at_nought(bootstrap, group, partitions))


async def _start_at_nought(
    bootstrap: str, group: str, partitions: Iterable[tuple[str, int]]
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_share_group_offsets(group, dict.fromkeys(partitions, 0))


async def _all_assigned(bootstrap: str, group: str, members: int) -> None:
    deadline = time.monotonic() + PATIENCE
    async with Admin(bootstrap) as admin:
        while True:
            [described] = await admin.describe_share_groups([group])
            if sum(bool(one.assignment) for one in described.members) == members:
                return
            assert time.monotonic() < deadline, described
            await asyncio.sleep(0.1)


async def _nothing_left(bootstrap: str, group: str) -> None:
    async with Admin(bootstrap) as admin:
        [offset] = await admin.list_share_group_offsets(group)
        assert offset.lag == 0, offset


# -- the machine ----------------------------------------------------------------------------------


def memory_row() -> Row:
    """What a record in flight costs when batches are acquired one after the other."""
    tracemalloc.start()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    held = _acquired(IN_FLIGHT)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held.in_flight == IN_FLIGHT
    per_record = (after - before) / IN_FLIGHT
    share = per_record / BYTES_ALLOWED
    return Row(
        f"memory per record in flight, {IN_FLIGHT:,} in batches of {LOG_BATCH}",
        f"{per_record:.2f} B",
        f"{BYTES_ALLOWED} B allowed",
        share,
        (share, share),
        1.0,
        at_most=True,
    )


def growth_row() -> Row:
    """Acknowledging one by one, in random order, a window and one ten times as large.

    Nothing but this process takes part, so its processor time is what counts.
    """
    small, large = WINDOWS
    lesser, greater = [], []
    for _ in range(3):
        lesser.append(_processor_seconds(_acknowledging(small)))
        greater.append(_processor_seconds(_acknowledging(large)))
    ratios = [more / less for less, more in zip(lesser, greater, strict=True)]
    return Row(
        f"acknowledging {large:,} records in random order, peer {small:,}",
        f"{statistics.median(greater) * 1000:.0f} ms",
        f"{statistics.median(lesser) * 1000:.0f} ms",
        statistics.median(greater) / statistics.median(lesser),
        (min(ratios), max(ratios)),
        12.0,
        at_most=True,
    )


def _processor_seconds(run: Callable[[], None]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _acquired(records: int) -> SharePartition:
    machine = SharePartition(DeliverySettings(max_record_locks=records), PersistedState(0, 0))
    turn = FetchTurn("member-of-the-benchmark", LOG_BATCH, LOG_BATCH)
    for first in range(0, records, LOG_BATCH):
        machine.acquire(turn, first, [LogBatch(first, first + LOG_BATCH - 1)], now_ms=first)
    return machine


def _acknowledging(records: int) -> Callable[[], None]:
    order = list(range(records))
    random.Random(records).shuffle(order)

    def run() -> None:
        machine = _acquired(records)
        for offset in order:
            ack = Ack(offset, offset, AcknowledgeType.ACCEPT)
            write = machine.acknowledge("member-of-the-benchmark", [ack], now_ms=0)
            assert write is not None
            machine.write_succeeded(write.write_id)
        assert machine.start_offset == records

    return run


def _row(what: str, ours: Sequence[float], theirs: Sequence[float], target: float) -> Row:
    ratios = [own / peer for own, peer in zip(ours, theirs, strict=True)]
    own, peer = statistics.median(ours), statistics.median(theirs)
    spread = (min(ratios), max(ratios))
    return Row(what, _rate(own), _rate(peer), own / peer, spread, target)


def _rate(records: float) -> str:
    return f"{records / 1000:.1f}k rec/s ({records * len(VALUE) / 1024**2:.0f} MiB/s)"


if __name__ == "__main__":
    main()
