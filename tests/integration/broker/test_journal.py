"""`ottla.flush.mode=journal` in a broker that is killed, and whose logs lose what was not synced.

A kill leaves the page cache as it is. A loss of power is played by cutting the log's own files
afterwards: what a round has written to the journal must come back from there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from itertools import count
from typing import TYPE_CHECKING

import pytest

from ottla.log.directory import DataDirectory
from ottla.log.journal.files import STALE_SUFFIX, STATE_FILE
from ottla.log.journal.replay import scan
from ottla.log.journal.slots import decode_header
from ottla.log.journal.writer import BLOCK
from ottla.wire.batch import iter_batches
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.faults_broker import BrokerProcess
from tests.support.raw_client import (
    EARLIEST,
    LATEST,
    RawClient,
    batch,
    fetch_request,
    produce_request,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOURNAL = {"ottla.flush.mode": "journal", "num.partitions": "3"}
TOPIC = "orders"


class Shop:
    """A broker with a topic, and what it has acknowledged."""

    def __init__(self, path: Path, **config: str) -> None:
        self.data = path / "data"
        self._path = path
        self.broker = BrokerProcess(path, config=JOURNAL | config)
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self._numbers = count()

    def move(self, path: Path) -> None:
        self._path = path
        self.data = path / "data"

    def restart(self, **config: str) -> None:
        self.broker = BrokerProcess(self._path, config=JOURNAL | config).start()

    def create(self) -> None:
        with RawClient(self.broker.bootstrap) as client:
            request = CreateTopicsRequest([CreatableTopic(TOPIC, 3, 1)], 10_000, False)
            assert client.ask("create_topics", 7, request).topics[0].error_code == 0

    def write(
        self, rounds: int, *, size: int = 100, partitions: tuple[int, ...] = (0, 1, 2)
    ) -> None:
        with RawClient(self.broker.bootstrap) as client:
            for _ in range(rounds):
                value = b"%d" % next(self._numbers) + b"." * size
                request = produce_request(TOPIC, dict.fromkeys(partitions, batch(value, value)))
                for answer in client.ask("produce", 9, request).responses[0].partition_responses:
                    assert answer.error_code == 0
                    self.acknowledged[answer.index_] += [value, value]

    def read(self, partition: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        with RawClient(self.broker.bootstrap) as client:
            offset = max(client.offset(TOPIC, EARLIEST, partition=partition).offset, 0)
            while True:
                answer = client.ask("fetch", 12, fetch_request({(TOPIC, partition): offset}))
                (data,) = answer.responses[0].partitions
                assert data.error_code == 0
                found = values_of(data)
                if not found:
                    return values
                values += found
                offset += len(found)

    def check(self) -> None:
        for partition, values in self.acknowledged.items():
            assert self.read(partition) == values

    def segments(self, partition: int) -> list[Path]:
        return sorted((self.data / f"{TOPIC}-{partition}").glob("*.log"))

    def lose_page_cache(self) -> int:
        """Cut the logs where the journal begins; how many bytes of them that took."""
        assert not self.broker.alive
        directory = DataDirectory(self.data)
        leftover = scan(directory)
        directory.close()
        assert leftover is not None
        lost = 0
        for key in leftover.unsettled():
            first = leftover.first_offset(key) or 0
            (segment,) = self.segments(key[1])
            data = segment.read_bytes()
            kept = sum(
                batch.size for batch in iter_batches(memoryview(data)) if batch.base_offset < first
            )
            lost += len(data) - kept
            segment.write_bytes(data[:kept])
        return lost


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(tmp_path)
    with opened.broker:
        opened.create()
        # The first round is synced by itself: it makes the journal's first file.
        opened.write(1)
        _until_there_is(opened.data / f"{STATE_FILE}.0", opened)
        yield opened
    if opened.broker.alive:
        opened.broker.kill()


def _until_there_is(path: Path, shop: Shop) -> None:
    """Rounds that are synced by themselves until the file is there and known."""
    while not path.exists() or not (shop.data / STATE_FILE).exists():
        shop.write(1)
    shop.write(2)


def _slots(path: Path) -> list[int]:
    """Where slots begin in a file of the journal."""
    data = path.read_bytes()
    return [at for at in range(0, len(data), BLOCK) if decode_header(data[at:]) is not None]


def test_a_kill_after_acknowledgements_loses_nothing(shop: Shop) -> None:
    shop.write(20)
    shop.broker.kill()
    shop.restart()
    shop.check()


def test_what_the_logs_lost_comes_back_from_the_journal(shop: Shop) -> None:
    """Case 20."""
    shop.write(30)
    shop.broker.kill()
    assert shop.lose_page_cache() > 30 * 3 * 200
    shop.restart()
    shop.check()
    shop.write(3)
    assert shop.broker.stop() == 0
    shop.restart()
    shop.check()


def test_a_broker_that_is_killed_while_it_replays_replays_again(shop: Shop) -> None:
    """Case 19: here after each log in turn."""
    shop.write(10)
    shop.broker.kill()
    shop.lose_page_cache()
    for partition in range(3):
        shop.restart()
        assert shop.read(partition) == shop.acknowledged[partition]
        shop.broker.kill()
    shop.restart()
    shop.check()


def test_a_partition_whose_files_are_older_than_the_journal_is_offline(shop: Shop) -> None:
    """Case 34: a hole is told, with both offsets, and the other partitions are served."""
    shop.write(10)
    shop.broker.kill()
    shop.lose_page_cache()
    shop.segments(0)[0].write_bytes(b"")  # a backup from before anything was written
    shop.restart()
    assert shop.read(1) == shop.acknowledged[1]
    with RawClient(shop.broker.bootstrap) as client:
        answer = client.ask("fetch", 12, fetch_request({(TOPIC, 0): 0}))
        assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "ends at 0, but the journal continues at" in shop.broker.log_text()


def test_a_clean_stop_leaves_a_directory_without_journal(shop: Shop) -> None:
    shop.write(5)
    assert "version=2" in (shop.data / "meta.properties").read_text()
    assert shop.broker.stop() == 0
    assert [path.name for path in shop.data.glob("ottla.journal*")] == []
    assert "version=1" in (shop.data / "meta.properties").read_text()
    shop.restart()
    shop.check()


@pytest.mark.parametrize("mode", ["group", "os"])
def test_what_is_in_the_journal_is_replayed_in_any_mode(shop: Shop, mode: str) -> None:
    """Case 35."""
    shop.write(5)
    shop.broker.kill()
    shop.restart(**{"ottla.flush.mode": mode})
    shop.check()
    assert shop.broker.stop() == 0
    assert [path.name for path in shop.data.glob("ottla.journal*")] == []


def test_a_damaged_slot_before_a_whole_one_ends_the_start(shop: Shop) -> None:
    """Case 16: the status is 3, a sentence says why, and nothing is touched."""
    shop.write(5)
    shop.broker.kill()
    path = shop.data / f"{STATE_FILE}.0"
    first = _slots(path)[-3]
    with path.open("r+b") as file:
        file.seek(first + 120)
        byte = file.read(1)
        file.seek(first + 120)
        file.write(bytes([byte[0] ^ 1]))
    logs = {path: path.read_bytes() for path in shop.segments(0)}
    status, told = _start(shop)
    assert status == 3
    assert "is damaged" in told
    assert "ottla.journal.lost=accept" in told
    assert {path: path.read_bytes() for path in shop.segments(0)} == logs
    shop.restart(**{"ottla.journal.lost": "accept"})
    shop.check()  # the kill left the page cache: here nothing is lost
    assert (shop.data / f"{STATE_FILE}.0{STALE_SUFFIX}").exists()


def test_a_directory_that_is_moved_takes_its_journal_along(shop: Shop, tmp_path: Path) -> None:
    shop.write(5)
    shop.broker.kill()
    shop.lose_page_cache()
    (tmp_path / "elsewhere").mkdir()
    shop.data.rename(tmp_path / "elsewhere/data")
    shop.move(tmp_path / "elsewhere")
    shop.restart()
    shop.check()


def test_a_journal_on_another_disk(tmp_path: Path) -> None:
    """It is found there after a kill, also by a broker that is not told where it is."""
    (tmp_path / "fast").mkdir()
    shop = Shop(tmp_path, **{"ottla.journal.dir": str(tmp_path / "fast")})
    with shop.broker:
        shop.create()
        shop.write(1)
        while not (shop.data / STATE_FILE).exists():
            shop.write(1)
        shop.write(10)
        assert len(list((tmp_path / "fast").iterdir())) == 1
    shop.lose_page_cache()
    shop.restart()
    shop.check()
    assert shop.broker.stop() == 0
    assert list((tmp_path / "fast").iterdir()) == []


def test_a_journal_that_is_not_there_ends_the_start(shop: Shop) -> None:
    """Case 30."""
    shop.write(5)
    shop.broker.kill()
    (shop.data / f"{STATE_FILE}.0").unlink()
    status, told = _start(shop)
    assert status == 3
    assert "is missing" in told
    shop.restart(**{"ottla.journal.lost": "accept"})
    shop.check()


def test_the_last_slot_may_be_torn(shop: Shop) -> None:
    """Case 14: it was being written, and nothing of it was acknowledged."""
    shop.write(5)
    shop.broker.kill()
    path = shop.data / f"{STATE_FILE}.0"
    last = _slots(path)[-1]
    with path.open("r+b") as file:
        file.seek(last + 130)
        file.write(bytes(4))
    shop.restart()
    shop.check()  # the kill left the page cache


def test_a_journal_beside_a_directory_of_version_1_is_set_aside(shop: Shop) -> None:
    """Case 33: somebody made an older broker write to these logs."""
    shop.write(5)
    shop.broker.kill()
    meta = shop.data / "meta.properties"
    meta.write_text(meta.read_text().replace("version=2", "version=1"))
    shop.restart()
    shop.check()
    assert (shop.data / f"{STATE_FILE}{STALE_SUFFIX}").exists()
    assert "the journal is renamed to" in shop.broker.log_text()


def test_a_topic_is_deleted_while_its_batches_are_in_the_journal(shop: Shop) -> None:
    """Case 11: also when the broker is killed before the journal has forgotten them."""
    shop.write(5)
    with RawClient(shop.broker.bootstrap) as client:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(TOPIC)], timeout_ms=10_000)
        assert client.ask("delete_topics", 6, request).responses[0].error_code == 0
    shop.create()
    shop.acknowledged = {0: [], 1: [], 2: []}
    shop.write(2)
    shop.broker.kill()
    shop.restart()
    shop.check()


def test_deleted_records_stay_deleted(shop: Shop) -> None:
    """Case 25: a log start above what the logs have after a crash."""
    shop.write(5)
    end = len(shop.acknowledged[0])
    with RawClient(shop.broker.bootstrap) as client:
        wanted = [DeleteRecordsPartition(0, end - 1)]  # inside the last batch
        request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, wanted)], 10_000)
        answer = client.ask("delete_records", 2, request).topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (0, end - 1)
    shop.broker.kill()
    shop.restart()
    with RawClient(shop.broker.bootstrap) as client:
        assert client.offset(TOPIC, EARLIEST).offset == end - 1
        assert client.offset(TOPIC, LATEST).offset == end


def test_large_batches_are_synced_by_themselves_between_small_ones(shop: Shop) -> None:
    """Case 24."""
    for size in (10, 400_000, 10, 300_000, 10, 300_000, 10):
        shop.write(1, size=size, partitions=(0,))
        shop.write(1, size=10, partitions=(1, 2))
    shop.broker.kill()
    shop.restart()
    shop.check()


def _start(shop: Shop) -> tuple[int, str]:
    """A start that is expected to fail, as a user sees it."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "broker", "--data-dir", str(shop.data), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_an_idempotent_producer_repeats_what_only_the_journal_has(shop: Shop) -> None:
    """Case 23: the batch is a duplicate, and has the offset it had."""
    sent = produce_request(
        TOPIC, {0: batch(b"once", producer_id=77, producer_epoch=0, base_sequence=0)}
    )
    with RawClient(shop.broker.bootstrap) as client:
        (first,) = client.ask("produce", 9, sent).responses[0].partition_responses
    assert first.error_code == 0
    shop.acknowledged[0].append(b"once")
    shop.broker.kill()
    assert shop.lose_page_cache()
    shop.restart()
    with RawClient(shop.broker.bootstrap) as client:
        (again,) = client.ask("produce", 9, sent).responses[0].partition_responses
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    shop.check()


def test_a_journal_of_another_directory_is_not_replayed(shop: Shop, tmp_path: Path) -> None:
    """Case 31: it has another stream, so its slots are none of this directory's."""
    shop.write(5)
    shop.broker.kill()
    (tmp_path / "other").mkdir()
    other = Shop(tmp_path / "other")
    with other.broker:
        other.create()
        other.write(1)
        _until_there_is(other.data / f"{STATE_FILE}.0", other)
    shutil.copy(other.data / f"{STATE_FILE}.0", shop.data / f"{STATE_FILE}.0")
    shop.restart()
    shop.check()  # the kill left the page cache
    assert "from the journal" not in shop.broker.log_text()


def test_a_copy_of_a_living_directory_has_prefixes(shop: Shop, tmp_path: Path) -> None:
    """Case 34: never a hole, never another partition's records; a gap is told."""
    copied = 0
    for number in range(5):
        copy = tmp_path / f"copy{number}"
        copy.mkdir()
        with Worker(shop):
            for name in ("metadata.db", "metadata.db-wal", "meta.properties"):
                if (shop.data / name).exists():
                    (copy / "data").mkdir(exist_ok=True)
                    shutil.copy(shop.data / name, copy / "data" / name)
            subprocess.run(
                ["cp", "-r", *sorted(shop.data.glob("[!m]*")), copy / "data"], check=False
            )
        lost = BrokerProcess(copy, config=JOURNAL | {"ottla.journal.lost": "accept"})
        with lost:
            for partition in shop.acknowledged:
                found = _values(lost.bootstrap, partition)
                if found is None:
                    assert "continues at" in lost.log_text()
                    continue
                copied += bool(found)
                assert found == shop.acknowledged[partition][: len(found)]
    assert copied


def test_two_brokers_keep_their_journals_in_one_directory(tmp_path: Path) -> None:
    """Case 37: after a kill of one only its own is replayed; the other is not touched."""
    shared = tmp_path / "fast"
    shared.mkdir()
    shops = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        shops.append(Shop(tmp_path / name, **{"ottla.journal.dir": str(shared)}))
    one, other = shops
    with one.broker, other.broker:
        for shop in shops:
            shop.create()
            shop.write(1)
            while not (shop.data / STATE_FILE).exists():
                shop.write(1)
            shop.write(5)
        one.broker.kill()
        assert one.lose_page_cache()
        other.write(3)
        before = {path: path.stat().st_ino for path in shared.iterdir()}
        one.restart(**{"ottla.journal.dir": str(shared)})
        one.check()
        other.write(3)
        other.check()
        assert one.broker.stop() == 0
        left = {path: path.stat().st_ino for path in shared.iterdir()}
        assert left
        assert left.items() < before.items()


@pytest.mark.parametrize("size", [16 << 20, 128 << 20])
def test_the_size_of_the_journal_is_changed(shop: Shop, size: int) -> None:
    """Case 38: what is in the old files is replayed, then they are replaced."""
    shop.write(10)
    shop.broker.kill()
    assert shop.lose_page_cache()
    shop.restart(**{"ottla.journal.bytes": str(size)})
    shop.check()
    shop.write(5)
    shop.broker.kill()
    shop.restart()
    shop.check()


@pytest.mark.parametrize("config", [{"ottla.flush.mode": "os"}, {"ottla.flush.mode": "group"}])
def test_other_modes_make_no_journal(tmp_path: Path, config: dict[str, str]) -> None:
    """Case 39."""
    shop = Shop(tmp_path, **config)
    with shop.broker:
        shop.create()
        shop.write(5)
        assert [path.name for path in shop.data.glob("ottla.journal*")] == []
        assert "version=1" in (shop.data / "meta.properties").read_text()


def test_a_directory_goes_through_all_modes(shop: Shop) -> None:
    """Case 35: after clean and unclean stops."""
    for mode, is_clean in [
        ("group", False),
        ("journal", True),
        ("os", False),
        ("journal", False),
        ("group", True),
        ("journal", False),
    ]:
        shop.write(5)
        if is_clean:
            assert shop.broker.stop() == 0
        else:
            shop.broker.kill()
        shop.restart(**{"ottla.flush.mode": mode})
        shop.check()


class Worker:
    """Writes to a shop until the end of the block."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ends.is_set():
            self._shop.write(1)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()


def _values(bootstrap: str, partition: int) -> list[bytes | None] | None:
    """All that the partition has; None if it is offline."""
    values: list[bytes | None] = []
    with RawClient(bootstrap) as client:
        while True:
            answer = client.ask("fetch", 12, fetch_request({(TOPIC, partition): len(values)}))
            (data,) = answer.responses[0].partitions
            if data.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                return None
            if data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue  # it is being recovered
            assert data.error_code == 0
            if not (found := values_of(data)):
                return values
            values += found
