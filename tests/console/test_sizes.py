"""Large values, many records, large files: all of them are found, and little is held."""

from __future__ import annotations

import csv
import io
import json
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from ottla.sync import Admin
from ottla.testing.embedded import EmbeddedBroker
from tests.support.console_process import console_process
from tests.support.raw_client import RawClient, batch, now_ms, produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long
MIB = 1 << 20
LARGE = 60 * 1_000_000
COPIES = 5
"""Of a value that are held at most: the answer as it is read, the answer, the batch, the record."""
MANY, BATCH = 1_000_000, 10_000
SOME = 100_000
WAIT = 300.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"message.max.bytes": str(2 * LARGE)}) as running:
        yield running


def fill(bootstrap: str, topic: str, count: int) -> None:
    now = now_ms()
    with RawClient(bootstrap) as client:
        for first in range(0, count, BATCH):
            values = [
                b'{"n": %d, "shop": "%s"}' % (one, b"oslo" if one % 1_000 == 7 else b"rome")
                for one in range(first, first + BATCH)
            ]
            data = batch(*values, timestamp=now)
            client.ask("produce", 9, produce_request(topic, {first // BATCH % 4: data}))


def peak(pid: int) -> int:
    """The most memory that the process has had since it started, or since `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def forget_peak(pid: int) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=WAIT) as answer:
        found: bytes = answer.read()
        return found


def test_case_39_a_value_of_60_megabytes(broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.create_topic("large")
    with RawClient(broker.bootstrap) as client:
        data = batch(b'{"text": "' + b"x" * LARGE + b'"}', timestamp=now_ms())
        client.ask("produce", 9, produce_request("large", {0: data}))
    with console_process(tmp_path, broker.bootstrap) as (url, pid):
        at = f"{url}c/local/topics/large/messages"
        get(f"{url}c/local/topics/large")
        before = forget_peak(pid)
        assert len(get(at)) < 40_000
        page = get(f"{at}/0/0").decode()
        assert len(page) < 3 * MIB
        assert "Download the value to see all of it" in page
        assert peak(pid) - before < COPIES * LARGE
        with urllib.request.urlopen(f"{at}/0/0/raw", timeout=WAIT) as file:
            read = 0
            while piece := file.read(MIB):
                read += len(piece)
        assert read == LARGE + 12


def found(url: str, query: str) -> list[int]:
    """All pages of what a search finds."""
    numbers: list[int] = []
    onward: str | None = ""
    while onward is not None:
        with urllib.request.urlopen(f"{url}?{query}&{onward}", timeout=WAIT) as answer:
            text = answer.read().decode()
            onward = answer.headers.get("ottla-next")
        numbers += [json.loads(line)["value"]["json"]["n"] for line in text.splitlines()]
    return numbers


def test_case_40_filters_over_a_million_records(broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.create_topic("many", partitions=4)
    fill(broker.bootstrap, "many", MANY)
    oslo = [number for number in range(MANY) if number % 1_000 == 7]
    with console_process(tmp_path, broker.bootstrap) as (url, _):
        at = f"{url}api/v1/c/local/topics/many/messages"
        assert sorted(found(at, "from=oldest&contains=oslo&rows=500")) == oslo
        where = quote("value.n >= 990000 && value.shop == 'oslo'")
        wanted = [number for number in oslo if number >= 990_000]
        both = f"from=newest&contains=oslo&where={where}&rows=500"
        assert sorted(found(at, both)) == wanted
        page = get(f"{url}c/local/topics/many/messages?contains=nothing&from=oldest").decode()
        told = re.search(r"scanned ([\d,]+) of ([\d,]+) records", page)
        assert told is not None
        scanned, every = (int(one.replace(",", "")) for one in told.groups())
        assert every == MANY
        assert scanned == MANY or "continue" in page


def test_case_44_files_of_100_000_records_are_streamed(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("some", partitions=4)
    broker.create_topic("few", partitions=4)
    fill(broker.bootstrap, "some", SOME)
    fill(broker.bootstrap, "few", BATCH)
    with Admin(broker.bootstrap) as admin:
        ends = sum(one.offset for one in admin.list_offsets(["some"]).values())
    assert ends == SOME
    with console_process(tmp_path, broker.bootstrap) as (url, pid):
        for form in ("jsonl", "csv", "parquet"):
            # What the format needs is loaded by the first file.
            get(f"{url}c/local/topics/few/download?format={form}")
            before = forget_peak(pid)
            file = get(f"{url}c/local/topics/some/download?format={form}")
            assert peak(pid) - before < 64 * MIB, form
            assert rows(form, file) == list(range(SOME))


def rows(form: str, file: bytes) -> list[int]:
    if form == "jsonl":
        return sorted(json.loads(line)["value"]["json"]["n"] for line in file.splitlines())
    if form == "csv":
        read = csv.DictReader(io.StringIO(file.decode()))
        return sorted(json.loads(row["value"])["n"] for row in read)
    values = pq.read_table(io.BytesIO(file)).column("value").to_pylist()
    return sorted(json.loads(value)["n"] for value in values)


def test_case_44_a_limit_is_said_in_the_file(broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.create_topic("over", partitions=4)
    fill(broker.bootstrap, "over", SOME)
    with console_process(tmp_path, broker.bootstrap, settings="download_max_mib = 1\n") as (url, _):
        lines = get(f"{url}c/local/topics/over/download?format=jsonl").splitlines()
        assert json.loads(lines[-1]) == {
            "limit": "stopped at the limit of 1 MiB (download_max_mib)"
        }
        assert len(get(f"{url}c/local/topics/over/download?format=csv")) < 1.1 * MIB
