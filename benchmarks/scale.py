"""Thousands of partitions, connections and group members: what they cost, and whom they hold up.

    python -m benchmarks.scale [--quick] [--only=TEXT]

Where Apache Kafka can do the same it is measured in the same run. Rows with a fixed limit show that
limit as the peer: a ratio of 0.5 means half of what is allowed. `--quick` uses a fifth of the
partitions; its figures say nothing about the limits of the full size.
"""

from __future__ import annotations

import socket
import statistics
import struct
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks._harness import Row, part, report, skipped
from benchmarks._ottla import OttlaProcess, WatchedOttla
from benchmarks._peers import apache_kafka, why_no_jvm
from benchmarks._scale_groups import group_row
from benchmarks._scale_probe import Probe
from benchmarks._scale_segments import build_segments, segments_left
from benchmarks._scale_sessions import session_row
from benchmarks.broker import AS_KAFKA, p99

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.broker import Broker

QUICK: Final = "--quick" in sys.argv
PARTITIONS_PER_TOPIC: Final = 100
KAFKA_TOPICS: Final = 5 if QUICK else 20  # 2,000 partitions: what Kafka can do on this machine
MANY_TOPICS: Final = 20 if QUICK else 100  # 10,000 partitions
SEGMENTS: Final = 100
IDLE, SLOW = 5_000, 200
# Percentiles swing from one run to the next by more than a crowd costs; a median of many does not.
# They take four minutes together.
CROWD_SECONDS: Final = 10
CROWD_ROUNDS: Final = 10
ROUNDS: Final = 3
STALL_LIMIT: Final = 0.100
STOP_LIMIT: Final = 3.0
RESTART_LIMIT: Final = 5.0
TURN_LIMIT: Final = 0.050
# Apache Kafka maps two index files for each log and holds them open.
KAFKA_HEAP: Final = "1g"


def main() -> None:
    rows: list[Row] = []
    rows += part("first writes, memory, peer Apache Kafka", kafka_rows)
    rows += part("ten thousand partitions", many_rows)
    rows += part("retention", retention_rows)
    rows += part("fetch session", lambda: [session_row()])
    rows += part("consumer group", lambda: [group_row()])
    rows += part("crowd", lambda: [crowd_row()])
    report("scale: thousands of everything", rows, ("confluent-kafka", "uvloop"))


# -- against Apache Kafka -------------------------------------------------------------------------


def kafka_rows() -> list[Row]:
    """The first write to each partition, and what the process weighs then."""
    if apache_kafka() is None:
        skipped("Apache Kafka", str(why_no_jvm()))
        return []
    seconds: tuple[list[float], list[float]] = ([], [])
    memory: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 if QUICK else ROUNDS):
        for index, broker in enumerate((OttlaProcess(), apache_kafka(heap=KAFKA_HEAP))):
            assert broker is not None
            with broker:
                seconds[index].append(first_writes(broker, KAFKA_TOPICS))
                memory[index].append(broker.rss_bytes() / 1024**2)
    count = KAFKA_TOPICS * PARTITIONS_PER_TOPIC
    return [
        _ratio_row(f"first write to each of {count:,} partitions", *seconds, 0.4, "{:.2f} s"),
        _ratio_row(f"resident memory, {count:,} written partitions", *memory, 0.1, "{:.0f} MiB"),
    ]


def first_writes(broker: Broker, topics: int) -> float:
    """Seconds until one record in each partition of new topics is acknowledged."""
    names = create_wide(broker, topics)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "acks": "all", "message.timeout.ms": 300_000}
    )
    for name in names:  # what a client knows of its topics beforehand is not measured
        while len(producer.list_topics(name, 60).topics[name].partitions) < PARTITIONS_PER_TOPIC:
            time.sleep(0.05)
    failed: list[object] = []
    began = time.perf_counter()
    for name in names:
        for index in range(PARTITIONS_PER_TOPIC):
            producer.produce(
                name,
                b"first",
                partition=index,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        producer.poll(0)
    assert producer.flush(300) == 0
    assert not failed, failed[0]
    return time.perf_counter() - began


def create_wide(broker: Broker, topics: int) -> list[str]:
    names = [f"wide-{number}" for number in range(topics)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = admin.create_topics([NewTopic(name, PARTITIONS_PER_TOPIC, 1) for name in names])
    for made in asked.values():
        made.result(60)
    return names


# -- ten thousand partitions ----------------------------------------------------------------------


def many_rows() -> list[Row]:
    """Other clients meanwhile, a clean stop, and a start after kill -9."""
    count = MANY_TOPICS * PARTITIONS_PER_TOPIC
    broker = OttlaProcess()
    with broker:
        with Probe(broker.bootstrap) as probe:
            time.sleep(1)
            alone = probe.longest()
            seconds = first_writes(broker, MANY_TOPICS)
            stall = probe.longest()
        mib = broker.rss_bytes() / 1024**2
        print(
            f"  {count:,} first writes: {seconds:.1f} s; longest wait of another producer "
            f"{stall * 1000:.0f} ms, alone {alone * 1000:.0f} ms; {mib:.0f} MiB resident"
        )
        stop = broker.stop()
        broker.start()
        clean_start = broker.seconds_to_ready
        _write_again(broker, count)
        broker.kill()
        broker.start()
        unclean_start = broker.seconds_to_ready
    print(f"  clean start {clean_start:.2f} s")
    return [
        _limit_row(f"longest wait of another producer, {count:,} first writes", stall, STALL_LIMIT),
        _limit_row(f"clean stop, {count:,} written partitions", stop, STOP_LIMIT),
        _limit_row(f"start after kill -9, {count:,} partitions", unclean_start, RESTART_LIMIT),
    ]


def _write_again(broker: OttlaProcess, count: int) -> None:
    """A second record to each partition, so that a kill leaves all of them dirty."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 300_000})
    for number in range(count // PARTITIONS_PER_TOPIC):
        for index in range(PARTITIONS_PER_TOPIC):
            producer.produce(f"wide-{number}", b"second", partition=index)
        producer.poll(0)
    assert producer.flush(300) == 0


def retention_rows() -> list[Row]:
    """Retention takes nearly all of many closed logs while another client asks small questions."""
    topics = MANY_TOPICS // 2 if QUICK else MANY_TOPICS
    broker = WatchedOttla({"log.retention.check.interval.ms": "5000", "log.retention.hours": "1"})
    with broker:
        names = [
            f"{topic}-{index}"
            for topic in sorted(create_wide(broker, topics))
            for index in range(PARTITIONS_PER_TOPIC)
        ]
        broker.stop()
        began = time.perf_counter()
        build_segments(broker.data_dir, names, SEGMENTS)
        made = segments_left(broker.data_dir, names)
        print(f"  {made:,} segments made in {time.perf_counter() - began:.0f} s")
        broker.start()
        began = time.perf_counter()
        with Probe(broker.bootstrap) as probe:
            # The last one that retention comes to: looking at all of them takes a processor.
            probe.wait_for(lambda: segments_left(broker.data_dir, names[-1:]) <= 1, seconds=600)
            seconds = time.perf_counter() - began
            stall = probe.longest()
        mib = broker.rss_bytes() / 1024**2
        broker.stop()
        turn, where = broker.longest_turn()
        left = segments_left(broker.data_dir, names)
        assert left == len(names), f"{left} segments are left of {made}"
    print(
        f"  {made - left:,} segments deleted in {seconds:.0f} s; longest wait of another producer "
        f"{stall * 1000:.0f} ms; {mib:.0f} MiB resident; the longest turn:\n{where}"
    )
    what = f"longest turn of the loop, retention over {len(names):,} x {SEGMENTS} segments"
    return [_limit_row(what, turn, TURN_LIMIT)]


# -- connections ----------------------------------------------------------------------------------


def crowd_row() -> Row:
    """What connections that say nothing, and some that send half a frame, cost a producer.

    One broker, so that both sides meet the same log and the same disk; who comes first changes from
    round to round, so that what a machine does over minutes is shared.
    """
    alone: list[float] = []
    crowded: list[float] = []
    with OttlaProcess(AS_KAFKA) as broker:
        p99(broker, CROWD_SECONDS)  # warms up
        cpu = [0.0, 0.0]

        def measure(into: list[float], side: int) -> None:
            before = broker.cpu_seconds()
            into.append(p99(broker, CROWD_SECONDS))
            cpu[side] += broker.cpu_seconds() - before

        for number in range(2 if QUICK else CROWD_ROUNDS):
            if number % 2 == 0:
                measure(alone, 0)
            with crowd(broker.bootstrap):
                measure(crowded, 1)
            if number % 2:
                measure(alone, 0)
    print(
        f"  p99 in ms alone {_in_ms(alone)}, beside the crowd {_in_ms(crowded)}; CPU of the broker "
        f"in a run {cpu[0] / len(alone):.2f} s and {cpu[1] / len(crowded):.2f} s"
    )
    what = f"produce p99 beside {IDLE:,} idle and {SLOW} slow connections, against alone"
    return _ratio_row(what, crowded, alone, 1.3, "{:.4f} s")


def _in_ms(seconds: list[float]) -> str:
    return " ".join(f"{one * 1000:.0f}" for one in sorted(seconds))


@contextmanager
def crowd(bootstrap: str) -> Iterator[None]:
    host, _, port = bootstrap.rpartition(":")
    with ExitStack() as stack:
        for number in range(IDLE + SLOW):
            other = stack.enter_context(socket.create_connection((host, int(port)), 60))
            if number < SLOW:
                other.sendall(struct.pack(">ihh", 100, 18, 3))
        yield


# -- rows -----------------------------------------------------------------------------------------


def _ratio_row(what: str, ours: list[float], theirs: list[float], target: float, text: str) -> Row:
    ratios = [own / peer for own, peer in zip(ours, theirs, strict=True)]
    own, peer = statistics.median(ours), statistics.median(theirs)
    spread = (min(ratios), max(ratios))
    return Row(what, text.format(own), text.format(peer), own / peer, spread, target, at_most=True)


def _limit_row(what: str, seconds: float, limit: float) -> Row:
    ratio = seconds / limit
    ours, allowed = (
        (f"{seconds * 1000:.0f} ms", f"{limit * 1000:.0f} ms")
        if limit < 1
        else (f"{seconds:.2f} s", f"{limit:.2f} s")
    )
    return Row(what, ours, f"limit {allowed}", ratio, (ratio, ratio), 1.0, at_most=True)


if __name__ == "__main__":
    main()
