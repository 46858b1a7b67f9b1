"""Several nodes on one machine: what they cost, and how long a death or a move is felt.

    python -m benchmarks.nodes [--quick] [--only=TEXT]

- cost: processor time of all processes for a record, two nodes against one. With a generator beside
  them, two cores cannot show how much faster two nodes are; how much more they cost says how much
  two cores carry.
  - client: librdkafka, with keys, so that all partitions get records. At full speed, which is what
    two cores have to carry: it has a request for each partition, as many for two nodes as for one.
    And at a steady rate far below that, without a target: requests are small then, and a node has
    durable writes of its own, which fewer requests share.
  - java: Kafka's producer at full speed. A request has a batch of each partition of its node, so
    two nodes have twice as many requests, each half as large.
  - requests: encoded ones, replayed. Once each node leads as many partitions as the one does, so
    that its requests are as large; once two nodes share as many, and each request is split in two,
    without a target: the clients above say what that means.
- supervisor: one node process below a supervisor against a broker without one.
- throughput: two nodes against one, where the generator can have a processor of its own.
- kill: from SIGKILL of a node until it acknowledges the next record.
- takeover: from the third SIGKILL of a node within a minute until another one acknowledges for it.
- news: from the answer to CreateTopics of one node until every other knows the topic.
- move: the longest gap between two acknowledgements while a partition moves to another node.
- start: `EmbeddedBroker(nodes=3)`, once its modules are imported.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks import _librdkafka as librdkafka
from benchmarks._harness import Row, part, report, skipped, until_clear
from benchmarks._ottla import OttlaProcess
from benchmarks._peers import PERF_TOOL_JVM, run_tool, why_no_jvm
from ottla import EmbeddedBroker
from ottla.sync import Admin
from ottla.wire.builder import BatchBuilder
from ottla.wire.schema.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.raw_client import RawClient, batch, fetch_request, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

QUICK: Final = "--quick" in sys.argv
ROUNDS: Final = 2 if QUICK else 5
MAX_ROUNDS: Final = 2 if QUICK else 11
PARTITIONS: Final = 12
TOPIC: Final = "records"
VALUE: Final = b"v" * 500
RECORDS: Final = 32  # in a batch
REQUESTS: Final = 200 if QUICK else 600  # each with a batch for every partition of its node
# After so much, logs and files of the journal are there, and the cache of tails is full: memory
# that is new to a process costs it more than memory that it has used before.
WARM_BYTES: Final = 72 * 1024**2
SLICE: Final = 20  # requests of one side before it is the other's turn
WINDOW: Final = 4  # requests in flight to a node; Kafka's producers have five
PASSES: Final = 4  # that read all of a round
CLIENT_SECONDS: Final = 1.0 if QUICK else 2.0  # of records handed to the client, in a round
JAVA_RECORDS: Final = 200_000 if QUICK else 1_000_000
JAVA_SECONDS: Final = 300.0
STEADY_RATE: Final = 20_000  # records a second
ALL_AT_ONCE: Final = 500_000  # a second: more than a broker takes
# So that the client waits for the broker alone, not for room.
CLIENT_ROOM: Final = {
    "queue.buffering.max.messages": "2000000",
    "queue.buffering.max.kbytes": "2000000",
}
SETTLE_SECONDS: Final = 1.5  # until the journal rests
THROUGHPUT_CORES: Final = 3
KILL_NODES: Final = 4
BROKERS: Final = 1 if QUICK else 6
# A third exit within a minute would hand its partitions over instead.
KILLS: Final = 2 * KILL_NODES
MOVES: Final = 5 if QUICK else 50
NEWS: Final = 20 if QUICK else 100
STARTS: Final = 5 if QUICK else 20
MOVED_BYTES: Final = (64 if QUICK else 1024) * 1024**2
MIB: Final = 1024**2
FETCH_BYTES: Final = 16 * MIB
AFTER_SECONDS: Final = 0.2  # in which the new leader acknowledges for the first time


class Nodes(OttlaProcess):
    """`ottla broker --nodes`; its processor time is that of all its processes."""

    def __init__(self, count: int, *, supervised: bool = True) -> None:
        super().__init__({} if count == 1 else {"ottla.nodes": str(count)})
        self.count = count
        self._supervised = supervised

    def _command(self) -> list[str]:
        if self.count > 1 or not self._supervised:
            return super()._command()
        return [sys.executable, "-c", ONE_SUPERVISED, str(self.data_dir)]

    def processes(self) -> dict[int, int]:
        """Node processes, by node; without one from which others have taken over."""
        root = self.data_dir
        found = {1: root / ".lock"}
        found |= {int(path.name[5:]): path / ".lock" for path in root.glob("node.*")}
        texts = {node: lock.read_text() for node, lock in sorted(found.items())}
        return {node: int(text) for node, text in texts.items() if text}

    def cpu_seconds(self) -> float:
        own = super().cpu_seconds()
        if self.count == 1 and not self._supervised:
            return own
        return own + sum(time.clock_gettime(~pid << 3 | 2) for pid in self.processes().values())


ONE_SUPERVISED: Final = """
import sys
from pathlib import Path
from ottla.broker.running.supervisor import Setup, run_nodes
from ottla.metadata.config.broker import load_broker_config
def ready(served):
    ((host, port),) = served.addresses.values()
    print(f"ottla broker ready: {host}:{port}", flush=True)
config = load_broker_config(sets=["listeners=PLAINTEXT://127.0.0.1:0"])
sys.exit(run_nodes(config, Setup(1, Path(sys.argv[1]), "text", "warning"), ready))
"""


def main() -> None:
    rows = part("client", client_rows)
    rows += part("java", java_rows)
    rows += part("requests", cost_rows)
    rows += part("supervisor", supervisor_rows)
    rows += part("throughput", throughput_rows)
    rows += part("kill", kill_rows)
    rows += part("takeover", takeover_rows)
    rows += part("news", news_rows)
    rows += part("move", move_rows)
    rows += part("start", start_rows)
    report("nodes: several on one machine", rows, ("uvloop",))


@contextmanager
def serving(*brokers: Nodes) -> Iterator[None]:
    """They are up together, each with an empty topic."""
    with ExitStack() as stack:
        for broker in brokers:
            stack.enter_context(broker)
            with Admin(broker.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=PARTITIONS)
        yield


class Led(NamedTuple):
    """A node, and what it leads."""

    node: int
    address: str
    partitions: list[int]


def led(bootstrap: str) -> list[Led]:
    with RawClient(bootstrap) as client:
        answer = client.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name=TOPIC)]))
    rows = answer.topics[0].partitions
    return [
        Led(one.node_id, f"{one.host}:{one.port}", [row.partition_index for row in mine])
        for one in answer.brokers
        if (mine := [row for row in rows if row.leader_id == one.node_id])
    ]


def records(count: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(VALUE, timestamp=time.time_ns() // 1_000_000)
    return bytes(builder.build())


# -- load -----------------------------------------------------------------------------------------


class Load:
    """Encoded requests for every node of a broker, over one connection to each of them.

    A request has a batch for each partition that its node leads.
    """

    def __init__(self, broker: Nodes) -> None:
        self.broker = broker
        self._nodes = [
            (RawClient(address), partitions) for _, address, partitions in led(broker.bootstrap)
        ]
        one = records(RECORDS)
        self._frames = [
            (client, client.frame("produce", 11, produce_request(TOPIC, dict.fromkeys(mine, one))))
            for client, mine in self._nodes
        ]
        self.partitions = sum(len(mine) for _, mine in self._nodes)
        self._warm()

    def _warm(self) -> None:
        for client, frame in self._frames:
            _send(client, frame, WARM_BYTES // len(frame), WINDOW)

    def produce(self, requests: int, window: int = WINDOW) -> float:
        """So many requests to each node, `window` of them in flight; seconds.

        A node has its requests in a row, so that it is as warm as on a processor of its own. On two
        that all share, changing nodes with each request costs 1.1 to 1.4 times as much.
        """
        return sum(_send(client, frame, requests, window) for client, frame in self._frames)

    def produce_at_once(self, requests: int) -> float:
        """The same to all nodes at once; seconds."""
        began = time.perf_counter()
        for number in range(requests + WINDOW):
            if number >= WINDOW:
                for client, _ in self._frames:
                    client.receive_frame()
            if number < requests:
                for client, frame in self._frames:
                    client.send_bytes(frame)
        return time.perf_counter() - began

    def records_of(self, requests: int) -> int:
        return requests * self.partitions * RECORDS

    def consume(self, requests: int) -> None:
        """The records of the first so many requests, with one fetch after the other."""
        for client, partitions in self._nodes:
            offsets = dict.fromkeys(partitions, 0)
            while offsets:
                wanted = {(TOPIC, index): offset for index, offset in offsets.items()}
                answer = client.fetch(fetch_request(wanted, max_bytes=FETCH_BYTES))
                for data in answer.responses[0].partitions:
                    offsets[data.partition_index] += len(data.records or b"") // SIZE * RECORDS
                    if offsets[data.partition_index] >= requests * RECORDS:
                        del offsets[data.partition_index]

    def close(self) -> None:
        for client, _ in self._nodes:
            client.close()


def _send(client: RawClient, frame: bytes, requests: int, window: int) -> float:
    began = time.perf_counter()
    for number in range(requests + window - 1):
        if number < requests:
            client.send_bytes(frame)
        if number >= window - 1:
            client.receive_frame()
    return time.perf_counter() - began


SIZE: Final = len(records(RECORDS))


@contextmanager
def loads(*brokers: Nodes, partitions: int, per_node: bool) -> Iterator[list[Load]]:
    """Of brokers that are up together; `partitions` in all, or for each node."""
    with ExitStack() as stack:
        found = []
        for broker in brokers:
            stack.enter_context(broker)
            with Admin(broker.bootstrap) as admin:
                count = partitions * broker.count if per_node else partitions
                admin.create_topic(TOPIC, partitions=count)
            load = Load(broker)
            stack.callback(load.close)
            found.append(load)
        yield found


def in_turns(sides: Sequence[Load], turn: int) -> Sequence[Load]:
    """So that each is the first as often as the other."""
    return sides if turn % 2 == 0 else sides[::-1]


# -- cost, supervisor and throughput --------------------------------------------------------------


def client_rows() -> list[Row]:
    rows = _client_costs("at full speed", ALL_AT_ONCE, 1.15)
    return rows + _client_costs(f"{STEADY_RATE:,} a second", STEADY_RATE, None)


def _client_costs(what: str, rate: int, target: float | None) -> list[Row]:
    costs: tuple[list[float], list[float]] = ([], [])

    def rows() -> list[Row]:
        return [
            _row(
                f"processor time of a record of librdkafka, {what}, 2 nodes, peer 1", costs, target
            )
        ]

    brokers = Nodes(2), Nodes(1, supervised=False)
    with serving(*brokers), ExitStack() as stack:
        settings = [{"bootstrap.servers": one.bootstrap, **CLIENT_ROOM} for one in brokers]
        clients = [
            stack.enter_context(librdkafka.Client(librdkafka.PRODUCER, one)) for one in settings
        ]
        sides = [*zip(brokers, clients, costs, strict=True)]

        def one_round(turn: int) -> None:
            for broker, client, found in sides if turn % 2 == 0 else sides[::-1]:
                before = broker.cpu_seconds()
                sent = client.produce_steadily(TOPIC, VALUE, rate, CLIENT_SECONDS)
                found.append((broker.cpu_seconds() - before) / sent * 1e6)

        for turn in range(2):  # until logs, files and caches are there
            one_round(turn)
        for found in costs:
            found.clear()
        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def java_rows() -> list[Row]:
    if (reason := why_no_jvm()) is not None:
        skipped("java", reason)
        return []
    costs: tuple[list[float], list[float]] = ([], [])

    def rows() -> list[Row]:
        what = "processor time of a record of Java's producer, at full speed, 2 nodes, peer 1"
        return [_row(what, costs, 1.15)]

    brokers = Nodes(2), Nodes(1, supervised=False)
    with serving(*brokers):
        sides = [*zip(brokers, costs, strict=True)]

        def one_round(turn: int) -> None:
            for broker, found in sides if turn % 2 == 0 else sides[::-1]:
                before = broker.cpu_seconds()
                done = run_tool(
                    *("kafka-producer-perf-test", "--topic", TOPIC, "--throughput", "-1"),
                    *("--num-records", str(JAVA_RECORDS), "--record-size", str(len(VALUE))),
                    *("--command-property", "acks=all"),
                    bootstrap=broker.bootstrap,
                    timeout=JAVA_SECONDS,
                    jvm_options=PERF_TOOL_JVM,
                )
                assert f"{JAVA_RECORDS} records sent" in done.stdout, done.stderr
                found.append((broker.cpu_seconds() - before) / JAVA_RECORDS * 1e6)

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def cost_rows() -> list[Row]:
    """Requests to two nodes are as large as those to one, as with twice the partitions, or half."""
    rows = _costs("12 partitions a node", (1.15, 1.10), per_node=True)
    rows += _costs("requests split in two", (None, 1.10), per_node=False)
    what = "requests split in two, one at a time"
    return rows + _costs(what, (None, None), per_node=False, window=1)


def _costs(
    what: str, targets: tuple[float | None, float | None], *, per_node: bool, window: int = WINDOW
) -> list[Row]:
    produced: tuple[list[float], list[float]] = ([], [])
    consumed: tuple[list[float], list[float]] = ([], [])

    def rows() -> list[Row]:
        of_produced = f"processor time of a produced record, {what}, 2 nodes, peer 1"
        of_consumed = f"processor time of a consumed record, {what}, 2 nodes, peer 1"
        found = [_row(of_produced, produced, targets[0])]
        return found if window == 1 else [*found, _row(of_consumed, consumed, targets[1])]

    brokers = Nodes(2), Nodes(1, supervised=False)
    with loads(*brokers, partitions=PARTITIONS, per_node=per_node) as sides:

        def one_round(turn: int) -> None:
            # Processes count their own time, so the brokers can work by turns.
            before = [load.broker.cpu_seconds() for load in sides]
            for part_ in range(REQUESTS // SLICE):
                for load in in_turns(sides, turn + part_):
                    load.produce(SLICE, window)
            for index, load in enumerate(sides):
                used = load.broker.cpu_seconds() - before[index]
                produced[index].append(used / load.records_of(REQUESTS) * 1e6)
            time.sleep(SETTLE_SECONDS)
            if window == 1:
                return
            costs: dict[Load, list[float]] = {load: [] for load in sides}
            for number in range(PASSES):
                for load in in_turns(sides, turn + number):
                    cpu = load.broker.cpu_seconds()
                    load.consume(REQUESTS)
                    costs[load].append(load.broker.cpu_seconds() - cpu)
            for index, load in enumerate(sides):
                count = load.records_of(REQUESTS)
                consumed[index].append(statistics.median(costs[load]) / count * 1e6)

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def supervisor_rows() -> list[Row]:
    brokers = Nodes(1), Nodes(1, supervised=False)
    return _rates(brokers, "one node below a supervisor, peer none", 0.98)


def throughput_rows() -> list[Row]:
    """The generator has a processor of its own, so that the nodes have the others."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < THROUGHPUT_CORES:
        skipped("throughput", f"{len(cores)} processors; two nodes and a generator need three")
        return []
    os.sched_setaffinity(0, cores[1:])  # of the brokers, which are started now
    try:
        brokers = Nodes(2), Nodes(1, supervised=False)
        return _rates(brokers, "2 nodes, peer 1", 1.7, cores[0])
    finally:
        os.sched_setaffinity(0, cores)


def _rates(
    brokers: tuple[Nodes, Nodes], what: str, target: float, core: int | None = None
) -> list[Row]:
    rates: tuple[list[float], list[float]] = ([], [])
    costs: tuple[list[float], list[float]] = ([], [])

    def rows() -> list[Row]:
        ratios = [own / peer for own, peer in zip(*rates, strict=True)]
        own, peer = map(statistics.median, rates)
        shown = f"{own:,.0f} rec/s", f"{peer:,.0f} rec/s"
        spread = min(ratios), max(ratios)
        return [
            Row(f"produced records, {what}", *shown, own / peer, spread, target),
            _row(f"processor time of a produced record, {what}", costs, None),
        ]

    with loads(*brokers, partitions=PARTITIONS, per_node=True) as sides:
        if core is not None:
            os.sched_setaffinity(0, {core})

        def one_round(turn: int) -> None:
            seconds: dict[Load, list[float]] = {load: [] for load in sides}
            before = [load.broker.cpu_seconds() for load in sides]
            for part_ in range(REQUESTS // SLICE):
                for load in in_turns(sides, turn + part_):
                    produce = load.produce if core is None else load.produce_at_once
                    seconds[load].append(produce(SLICE))
            for index, load in enumerate(sides):
                count = load.records_of(REQUESTS)
                # Of most turns: one in which something else had the disk or the processor says
                # nothing about either of them.
                rates[index].append(load.records_of(SLICE) / statistics.median(seconds[load]))
                costs[index].append((load.broker.cpu_seconds() - before[index]) / count * 1e6)

        return until_clear(one_round, rows, ROUNDS, MAX_ROUNDS)


def _row(what: str, costs: tuple[Sequence[float], Sequence[float]], target: float | None) -> Row:
    ratios = [own / peer for own, peer in zip(*costs, strict=True)]
    own, peer = map(statistics.median, costs)
    shown = f"{own:.3f} us CPU", f"{peer:.3f} us CPU"
    return Row(what, *shown, own / peer, (min(ratios), max(ratios)), target, at_most=True)


# -- kill and move --------------------------------------------------------------------------------


def kill_rows() -> list[Row]:
    seconds = [one for _ in range(BROKERS) for one in _kills()]
    return [_seconds("a killed node acknowledges again", seconds, 1.0)]


def _kills() -> list[float]:
    found = []
    broker = Nodes(KILL_NODES)
    with serving(broker):
        one = bytes(batch(b"value"))
        partitions = {}
        for node, address, mine in led(broker.bootstrap):
            with RawClient(address) as client:
                client.ask("produce", 11, produce_request(TOPIC, dict.fromkeys(mine, one)))
            partitions[node] = mine[0]
        for number in range(KILLS):
            node = number % KILL_NODES + 1
            os.kill(broker.processes()[node], signal.SIGKILL)
            began = time.perf_counter()
            _until_acknowledged(broker.bootstrap, partitions[node], one)
            found.append(time.perf_counter() - began)
            time.sleep(0.5)
    return found


def takeover_rows() -> list[Row]:
    seconds = []
    for _ in range(BROKERS):
        broker = Nodes(KILL_NODES)
        with serving(broker):
            one = bytes(batch(b"value"))
            mine = {node: partitions[0] for node, _, partitions in led(broker.bootstrap)}
            for node, partition in list(mine.items())[: KILL_NODES // 2]:  # the others take over
                for _ in range(3):
                    _until_acknowledged(broker.bootstrap, partition, one)
                    os.kill(broker.processes()[node], signal.SIGKILL)
                    began = time.perf_counter()
                _until_acknowledged(broker.bootstrap, partition, one)
                seconds.append(time.perf_counter() - began)
    return [_seconds("other nodes acknowledge for one that keeps dying", seconds, 1.0)]


def news_rows() -> list[Row]:
    seconds = []
    broker = Nodes(KILL_NODES)
    with serving(broker), ExitStack() as stack, Admin(broker.bootstrap) as admin:
        nodes = [stack.enter_context(RawClient(address)) for _, address, _ in led(broker.bootstrap)]
        for number in range(NEWS):
            name = f"news-{number}"
            admin.create_topic(name)
            began = time.perf_counter()
            for client in nodes:
                while client.topic(name).error_code:
                    pass
            seconds.append(time.perf_counter() - began)
    return [_seconds("all nodes know a topic that one has created", seconds, 0.05)]


def _until_acknowledged(bootstrap: str, partition: int, one: bytes) -> None:
    """As a client does it: look the leader up, send, begin again."""
    while True:
        try:
            for _, address, partitions in led(bootstrap):
                if partition in partitions:
                    with RawClient(address) as client:
                        if client.produce(TOPIC, one, partition=partition).error_code == 0:
                            return
        except OSError:
            pass  # it is not back yet
        time.sleep(0.005)


def move_rows() -> list[Row]:
    broker = Nodes(2)
    gaps = []
    with broker, Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=1)
        large = records(1_900)
        ((_, address, _),) = led(broker.bootstrap)
        with RawClient(address) as client:
            for _ in range(MOVED_BYTES // len(large)):
                client.produce(TOPIC, large, partition=0)
        inodes = _inodes(broker.data_dir)
        nodes = [one.broker.id for one in admin.describe_nodes()]
        leader = admin.describe_topics([TOPIC])[0].partitions[0].leader
        for _ in range(MOVES):
            leader = next(node for node in nodes if node != leader)
            gaps.append(_gap(broker, admin, leader))
        assert inodes <= _inodes(broker.data_dir), "a move copied a segment"
    size = f"{MOVED_BYTES // MIB:,} MiB"
    return [_seconds(f"a partition of {size} moves: longest gap of acknowledgements", gaps, 0.1)]


def _inodes(root: Path) -> set[int]:
    return {path.stat().st_ino for path in root.glob(f"**/{TOPIC}-0/*.log")}


def _gap(broker: Nodes, admin: Admin, to: int) -> float:
    """The longest time between two acknowledgements while the partition moves."""
    one = bytes(batch(b"value"))
    mover = Thread(target=admin.reassign_partitions, args=({(TOPIC, 0): [to]},))
    longest, end = 0.0, None
    ((leader, address, _),) = led(broker.bootstrap)
    client = RawClient(address)
    mover.start()
    last = time.perf_counter()
    while end is None or time.perf_counter() < end:
        if client.produce(TOPIC, one).error_code == 0:
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            continue
        for node, address, _ in led(broker.bootstrap):
            if node != leader:
                client.close()
                leader, client = node, RawClient(address)
                end = time.perf_counter() + AFTER_SECONDS
    client.close()
    mover.join()
    return longest


def start_rows() -> list[Row]:
    seconds = []
    for _ in range(STARTS + 1):
        began = time.perf_counter()
        with EmbeddedBroker(nodes=3):
            seconds.append(time.perf_counter() - began)
    del seconds[0]  # it imports the broker
    middle = statistics.median(seconds)
    shown = f"p50 {middle * 1000:.0f} ms of {len(seconds)}"
    spread = min(seconds), max(seconds)
    what = "EmbeddedBroker(nodes=3) starts, seconds"
    return [Row(what, shown, "1 s", middle, spread, 0.06, at_most=True)]


def _seconds(what: str, found: Sequence[float], target: float) -> Row:
    """The 99th percentile in seconds, as the ratio to one second."""
    ordered = sorted(found)
    late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    middle = statistics.median(ordered)
    shown = f"p50 {middle * 1000:.0f} ms, p99 {late * 1000:.0f} ms of {len(ordered)}"
    return Row(f"{what}, seconds", shown, "1 s", late, (ordered[0], late), target, at_most=True)


if __name__ == "__main__":
    main()
