"""The console: how long pages take, what they cost the broker, and how much memory it needs.

    python -m benchmarks.console [--quick] [--only=TEXT]      # some 4 minutes; 1 with --quick

The peer of a row is the figure that was wanted, but where the broker is compared with itself.

- lists: pages of 1,000 topics of 10 partitions and 1,000 groups, on loopback; memory after them.
- messages: the first 50 messages of a topic of 10 M records in 10 partitions.
- idle: the first page of a console that a broker starts when somebody comes.
- nobody: a broker with --console that nobody looks at, against one without.
- looking: processor time of the broker while one page is open, against nobody there.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks._harness import Row, part, report
from benchmarks._ottla import OttlaProcess
from ottla.sync import Admin
from ottla.wire.builder import BatchBuilder
from tests.support.raw_client import RawClient, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUICK: Final = "--quick" in sys.argv
TOPICS: Final = 100 if QUICK else 1_000
PARTITIONS: Final = 10
GROUPS: Final = 100 if QUICK else 1_000
TURNS: Final = 10 if QUICK else 50
RECORDS: Final = 100_000 if QUICK else 10_000_000
BATCH: Final = 10_000
STARTS: Final = 2 if QUICK else 7
LOOK_SECONDS: Final = 20.0 if QUICK else 120.0
REFRESH_SECONDS: Final = 5.0
MIB: Final = 1 << 20
WAIT: Final = 120.0


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT) as answer:
        text: str = answer.read().decode()
        return text


def timed(url: str) -> float:
    began = time.perf_counter()
    read(url)
    return time.perf_counter() - began


@contextmanager
def console(bootstrap: str) -> Iterator[tuple[str, int]]:
    """`ottla console` as a process: its URL and its number."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as state:
        command = [sys.executable, "-m", "ottla.cli", "console", "--bootstrap", bootstrap]
        command += ["--listen", "127.0.0.1:0", "--state", state]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield line.split()[-1], process.pid
        finally:
            process.terminate()
            process.wait()


def rss(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def within(what: str, seconds: Sequence[float], wanted: float) -> Row:
    """A row of a time that is to be at most so long."""
    ratios = [one / wanted for one in seconds]
    return Row(
        what,
        f"{statistics.median(seconds) * 1000:.0f} ms",
        f"{wanted * 1000:.0f} ms wanted",
        statistics.median(ratios),
        (min(ratios), max(ratios)),
        1.0,
        at_most=True,
    )


def lists() -> list[Row]:
    rows = []
    with OttlaProcess() as broker:
        with Admin(broker.bootstrap) as admin:
            for number in range(TOPICS):
                admin.create_topic(f"topic-{number:04}", partitions=PARTITIONS)
            for number in range(GROUPS):
                place = (f"topic-{number % TOPICS:04}", number % PARTITIONS)
                admin.alter_group_offsets(f"group-{number:04}", {place: 0})
        first = []
        for _ in range(STARTS):
            with console(broker.bootstrap) as (url, _):
                first.append(timed(f"{url}c/local/topics"))
        rows.append(within("first page of a new console: topics", first, 0.3))
        with console(broker.bootstrap) as (url, pid):
            for path, name in (("", "overview"), ("topics", "topics"), ("groups", "groups")):
                seconds = [timed(f"{url}c/local/{path}") for _ in range(TURNS)]
                rows.append(within(f"{name}, warm", seconds, 0.1))
            held = rss(pid) / (150 * MIB)
            rows.append(
                Row(
                    "memory of the console after that",
                    f"{rss(pid) / MIB:.0f} MiB",
                    "150 MiB wanted",
                    held,
                    (held, held),
                    1.0,
                    at_most=True,
                )
            )
    return rows


def fill(bootstrap: str) -> None:
    builder = BatchBuilder()
    now = time.time_ns() // 1_000_000
    for number in range(BATCH):
        builder.append(b'{"n": %d}' % number, key=b"%d" % number, timestamp=now)
    batch = bytes(builder.build())
    with RawClient(bootstrap) as client:
        for _ in range(RECORDS // BATCH // PARTITIONS):
            for partition in range(PARTITIONS):
                client.ask("produce", 11, produce_request("orders", {partition: batch}))


def messages() -> list[Row]:
    with OttlaProcess() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=PARTITIONS)
        fill(broker.bootstrap)
        with console(broker.bootstrap) as (url, _):
            rows = []
            for start in ("newest", "oldest", "ago:1h"):
                page = f"{url}c/local/topics/orders/messages?from={start}"
                assert read(page).count("<tr") > 50
                seconds = [timed(page) for _ in range(TURNS)]
                rows.append(within(f"50 of {RECORDS:,} messages, {start}", seconds, 0.2))
    return rows


@contextmanager
def with_console() -> Iterator[tuple[OttlaProcess, str]]:
    with OttlaProcess({"ottla.console.listener": "http://127.0.0.1:0"}) as broker:
        ports = {
            int(one, 16)
            for one in re.findall(r"0100007F:([0-9A-F]{4}) 00000000:0000 0A", _listening(broker))
        }
        [port] = ports - {int(broker.bootstrap.rpartition(":")[2])}
        yield broker, f"http://127.0.0.1:{port}/"


def _listening(broker: OttlaProcess) -> str:
    """The rows of /proc/net/tcp whose sockets are the broker's."""
    inodes = set()
    for one in Path(f"/proc/{broker.pid}/fd").iterdir():
        target = str(one.readlink())
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = Path("/proc/net/tcp").read_text().splitlines()
    return "\n".join(row for row in rows if row.split()[9] in inodes)


def idle() -> list[Row]:
    seconds = []
    for _ in range(STARTS):
        with with_console() as (_, url):
            seconds.append(timed(f"{url}c/local/"))
    return [within("first page of a broker's console", seconds, 0.8)]


def nobody() -> list[Row]:
    plain, with_door, children = [], [], 0
    for _ in range(STARTS):
        with OttlaProcess() as broker:
            time.sleep(1.0)
            plain.append(broker.rss_bytes())
        with with_console() as (broker, _):
            time.sleep(1.0)
            with_door.append(broker.rss_bytes())
            children += len(
                Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
            )
    ratios = [one / other for one, other in zip(with_door, plain, strict=True)]
    return [
        Row(
            f"memory with --console and nobody there; {children} extra processes",
            f"{statistics.median(with_door) / MIB:.1f} MiB",
            f"{statistics.median(plain) / MIB:.1f} MiB without",
            statistics.median(ratios),
            (min(ratios), max(ratios)),
            1.01,
            at_most=True,
        )
    ]


def looking() -> list[Row]:
    with OttlaProcess() as broker:
        with Admin(broker.bootstrap) as admin:
            for number in range(TOPICS):
                admin.create_topic(f"topic-{number:04}", partitions=PARTITIONS)

        def spent(seconds: float, url: str = "") -> float:
            began, until = broker.cpu_seconds(), time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                if url:
                    read(url)
                time.sleep(min(REFRESH_SECONDS, left))
            return (broker.cpu_seconds() - began) / seconds

        alone = spent(LOOK_SECONDS / 2)
        with console(broker.bootstrap) as (url, _):
            read(f"{url}c/local/topics")  # what is known at once is not part of looking
            time.sleep(REFRESH_SECONDS)
            watched = spent(LOOK_SECONDS, f"{url}c/local/topics")
    more = (watched - alone) / 0.01
    return [
        Row(
            f"broker while one page is open, {TOPICS * PARTITIONS:,} partitions",
            f"{(watched - alone) * 100:.2f} % of a core",
            "1 % wanted",
            more,
            (more, more),
            1.0,
            at_most=True,
        )
    ]


@contextmanager
def bytecode() -> Iterator[None]:
    """Processes find compiled modules, as those of an installed wheel do."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = directory
        with with_console() as (_, url):
            read(f"{url}c/local/")
        yield


def main() -> None:
    with bytecode():
        rows = [
            *part("lists", lists),
            *part("messages", messages),
            *part("idle", idle),
            *part("nobody", nobody),
            *part("looking", looking),
        ]
    report("The console", rows, ["starlette", "uvicorn", "jinja2"])


if __name__ == "__main__":
    main()
