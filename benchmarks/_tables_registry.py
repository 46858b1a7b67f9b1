"""The schema registry beside a producer, and what it costs a broker that has none.

python -m benchmarks._tables_registry [--quick]
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import statistics
import sys
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from benchmarks._harness import Row, part, report
from benchmarks._ottla import OttlaProcess, release_source
from ottla.sync import SchemaRegistry
from tests.support.many_schemas import fill_schemas
from tests.support.ports import free_port
from tests.support.raw_client import RawClient, batch, produce_request
from tests.support.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

QUICK: Final = "--quick" in sys.argv
SECONDS: Final = 4.0 if QUICK else 10.0
ROUNDS: Final = 3 if QUICK else 5
STARTS: Final = 7 if QUICK else 15
PER_SECOND: Final = 200
LIMIT_MS: Final = 5.0
ALONE_MS: Final = 1.0
PRODUCE_LIMIT: Final = 1.1
START_LIMIT: Final = 1.02
LATER_MS: Final = 25.0
SUBJECTS: Final = 10_000 if QUICK else 100_000
LOAD_MS: Final = 5_000.0
BEFORE: Final = "ebc06365"
"""The last commit without registry and tables."""
AS_KAFKA: Final = {"ottla.flush.mode": "os"}
SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def main() -> None:
    report("tables: the registry", registry_rows(), ("h11",))


def registry_rows() -> list[Row]:
    rows = part("registry: GET by id", request_rows)
    rows += part(f"registry: {SUBJECTS:,} subjects", many_rows)
    return rows + part("broker without registry and tables", start_rows)


# -- requests --------------------------------------------------------------------------------------


def request_rows() -> list[Row]:
    """A producer and a client of the registry, each a process, alone and together in turns."""
    port = free_port()
    config = {**AS_KAFKA, "ottla.registry.listener": f"http://127.0.0.1:{port}"}
    with OttlaProcess(config) as broker:
        url = f"http://127.0.0.1:{port}"
        with SchemaRegistry(url) as registry:
            number = registry.register("orders-value", json.dumps(SCHEMA)).id
        create_topic(broker.bootstrap, "latency", 1)
        one = asked(url, number, None, SECONDS)
        alone, beside, answers = [], [], []
        with RawClient(broker.bootstrap) as client:
            produced(client, 1)
            for _ in range(ROUNDS):
                alone.append(p99(produced(client, SECONDS)))
                with Asking(url, number) as asking:
                    beside.append(p99(produced(client, SECONDS)))
                answers.append(p99(asking.seen))
    return [
        _within("registry: GET by id, one connection, p50", [statistics.median(one)], ALONE_MS),
        _within(f"registry: GET by id, p99 at {PER_SECOND} requests/s", answers, LIMIT_MS),
        _against("producer's p99 beside these requests, peer alone", beside, alone, PRODUCE_LIMIT),
    ]


def many_rows() -> list[Row]:
    """A registry that begins with many subjects in its topic."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with OttlaProcess(AS_KAFKA) as broker:
        fill_schemas(broker.bootstrap, SUBJECTS)
        broker.stop()
        broker.configure({"ottla.registry.listener": url})
        loads = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            broker.start()
            asked(url, SUBJECTS, None, 0.001)
            loads.append((time.perf_counter() - began) * 1000)
            answers = asked(url, SUBJECTS // 2, None, 1)
            broker.stop()
        broker.start()
    what = f"registry: {SUBJECTS:,} subjects"
    return [
        _within(f"{what}, start to first answer", loads, LOAD_MS),
        _within(f"{what}, GET by id, p50", [statistics.median(answers)], ALONE_MS),
    ]


def produced(client: RawClient, seconds: float) -> list[float]:
    """Milliseconds of requests with one record, one every two milliseconds."""
    request = produce_request("latency", {0: bytes(batch(b"x" * 100))})
    seen = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        client.ask("produce", 9, request)
        seen.append((time.perf_counter() - began) * 1000)
        time.sleep(0.002)
    return seen


class Asking:
    """A process that asks for the schema PER_SECOND times a second, from enter to exit."""

    def __init__(self, url: str, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._mine, theirs = context.Pipe()
        self._process = context.Process(target=_asking, args=(url, number, theirs), daemon=True)
        self.seen: list[float] = []

    def __enter__(self) -> Asking:
        self._process.start()
        self._mine.recv()  # it has begun
        return self

    def __exit__(self, *_: object) -> None:
        self._mine.send("enough")
        self.seen = self._mine.recv()
        self._process.join()


def _asking(url: str, number: int, pipe: Connection) -> None:
    asked(url, number, None, 0.2)  # it has warmed up
    pipe.send("begun")
    pipe.send(asked(url, number, pipe, 60 * SECONDS))


def asked(url: str, number: int, pipe: Connection | None, seconds: float) -> list[float]:
    """Milliseconds of requests on one connection: paced until the pipe says enough, else as fast
    as they are answered."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    seen: list[float] = []
    start = time.perf_counter()
    while (began := time.perf_counter()) < start + seconds:
        if pipe is not None and pipe.poll():
            break
        connection.request("GET", f"/schemas/ids/{number}")
        answer = connection.getresponse()
        found = answer.read()
        seen.append((time.perf_counter() - began) * 1000)
        assert answer.status == 200, found
        if pipe is not None:
            due = start + len(seen) / PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
    connection.close()
    return seen


def p99(milliseconds: Sequence[float]) -> float:
    return statistics.quantiles(milliseconds, n=100)[98]


# -- start -----------------------------------------------------------------------------------------


def start_rows() -> list[Row]:
    """Start and memory of a broker without the two, against the last source that had neither."""
    with release_source(BEFORE) as source:
        plain, before, listening = [], [], []
        memory: tuple[list[float], list[float]] = ([], [])
        for _ in range(STARTS):
            with OttlaProcess() as broker:
                plain.append(broker.cpu_seconds() * 1000)
                memory[0].append(broker.rss_bytes() / 1024**2)
            with OttlaProcess(source=source) as broker:
                before.append(broker.cpu_seconds() * 1000)
                memory[1].append(broker.rss_bytes() / 1024**2)
            with OttlaProcess({"ottla.registry.listener": "http://127.0.0.1:0"}) as broker:
                listening.append(broker.cpu_seconds() * 1000)
    later = [one - other for one, other in zip(listening, plain, strict=True)]
    return [
        _against("start without registry and tables, CPU, peer before them", plain, before,
                 START_LIMIT),
        _against("memory without registry and tables, peer before them", *memory,
                 START_LIMIT, unit="MiB"),
        _within("start with a registry, CPU more than without", later, LATER_MS),
    ]  # fmt: skip


# -- rows ------------------------------------------------------------------------------------------


def _against(
    what: str, ours: Sequence[float], peer: Sequence[float], limit: float, unit: str = "ms"
) -> Row:
    ratios = [own / other for own, other in zip(ours, peer, strict=True)]
    own, other = statistics.median(ours), statistics.median(peer)
    return Row(
        what,
        f"{own:.2f} {unit}",
        f"{other:.2f} {unit}",
        own / other,
        (min(ratios), max(ratios)),
        limit,
        at_most=True,
    )


def _within(what: str, milliseconds: Sequence[float], limit: float) -> Row:
    middle = statistics.median(milliseconds)
    return Row(
        what,
        f"{middle:.2f} ms",
        f"{limit:g} ms allowed",
        middle / limit,
        (min(milliseconds) / limit, max(milliseconds) / limit),
        1.0,
        at_most=True,
    )


if __name__ == "__main__":
    main()
