"""Mapped files whose pages cannot be read, or are sent late; numbers are the specification's cases.

Every broker is a process of its own: one that reads such a page itself is killed by the kernel.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.schema.delete_topics import DeleteTopicsRequest
from tests.support.doors import make_tls_files
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess
from tests.support.ports import free_ports
from tests.support.raw_client import RawClient, batch, fetch_request, values_of
from tests.support.share_member import WAIT_MS, partitions_of
from tests.support.share_queue import Queue
from tests.support.tls_client import RawTlsClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.share_member import ShareMember

KIB: Final = 1024
MIB: Final = 1024 * KIB
VALUE: Final = 200 * KIB
# No answer comes from the memory of the process.
CONFIG: Final = {"ottla.tail.cache.bytes": "0", "ottla.flush.mode": "os"}


class Place:
    """A broker with a listener of each kind, and readers that come in by one of them."""

    def __init__(self, directory: Path, module: str, *, tls: bool) -> None:
        files = make_tls_files(directory)
        plain, encrypted = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"
        config = {**CONFIG, **files.config(), "listeners": listeners}
        self.broker = BrokerProcess(directory, config=config, module=module, port=plain)
        self._tls = f"127.0.0.1:{encrypted}" if tls else None
        self._ca = files.ca

    def reader(self) -> RawClient:
        if self._tls is None:
            return RawClient(self.broker.bootstrap)
        return RawTlsClient(self._tls, self._ca)


def create(client: RawClient, topic: str, config: Mapping[str, str] | None = None) -> None:
    settings = [CreatableTopicConfig(key, value) for key, value in (config or {}).items()]
    wanted = CreatableTopic(topic, 1, -1, configs=settings)
    made = client.ask("create_topics", 5, CreateTopicsRequest([wanted]))
    assert made.topics[0].error_code == ErrorCode.NONE


def fill(client: RawClient, topic: str, count: int, size: int = VALUE) -> list[bytes]:
    values = [bytes([number]) * size for number in range(count)]
    for value in values:
        assert client.produce(topic, batch(value)).error_code == ErrorCode.NONE
    return values


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_43_a_file_that_is_cut_under_its_map_costs_a_connection_and_its_log(
    tmp_path: Path, *, tls: bool
) -> None:
    place = Place(tmp_path, "tests.support.faults_broker", tls=tls)
    with place.broker as broker, RawClient(broker.bootstrap) as client:
        for topic in ("cut", "whole"):
            create(client, topic)
            fill(client, topic, 4)
            assert len(values_of(client.fetch_one(topic, 0))) == 4
        (path,) = (tmp_path / "data" / "cut-0").glob("*.log")
        os.truncate(path, 250 * KIB)
        with place.reader() as reader:
            wanted = {("cut", 0): 0}
            reader.send("fetch", 12, fetch_request(wanted))
            with pytest.raises(ConnectionError):
                reader.receive("fetch", 12)
        assert broker.alive
        assert client.fetch_one("cut", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(values_of(client.fetch_one("whole", 0))) == 4
        assert client.produce("whole", batch(b"more")).error_code == ErrorCode.NONE
        assert broker.alive


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_43_a_bad_sector_that_is_met_while_a_page_is_sent_costs_the_same(
    tmp_path: Path, *, tls: bool
) -> None:
    """Other clients and other logs are served."""
    place = Place(tmp_path, "tests.support.bad_sector_broker", tls=tls)
    with place.broker as broker, RawClient(broker.bootstrap) as client:
        for topic in ("bad", "good"):
            create(client, topic)
            fill(client, topic, 4)
        with place.reader() as reader:
            reader.send("fetch", 12, fetch_request({("bad", 0): 0}))
            assert reader.closed()
        assert broker.alive
        assert client.fetch_one("bad", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(values_of(client.fetch_one("good", 0))) == 4
        assert client.produce("good", batch(b"more")).error_code == ErrorCode.NONE
        assert broker.alive


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_44_nobody_but_the_kernel_reads_a_map(tmp_path: Path, *, tls: bool) -> None:
    """Whoever does is killed. The kernel refuses to send, and then the log is read."""
    place = Place(tmp_path, "tests.support.faulting_maps_broker", tls=tls)
    with place.broker as broker, RawClient(broker.bootstrap) as client:
        create(client, "orders")
        values = fill(client, "orders", 4)
        for isolation_level in (0, 1):
            request = fetch_request({("orders", 0): 0}, isolation_level=isolation_level)
            with place.reader() as reader:
                reader.send("fetch", 12, request)
                if isolation_level == 0:
                    assert reader.closed()
                else:
                    _, answer = reader.receive("fetch", 12)
                    assert values_of(answer.responses[0].partitions[0]) == values
        assert broker.alive
        assert "could not be sent" in broker.log_text()
        assert broker.stop() == 0


def test_44_small_answers_are_joined_and_have_no_views(tmp_path: Path) -> None:
    module = "tests.support.faulting_maps_broker"
    with (
        BrokerProcess(tmp_path, config=CONFIG, module=module) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        create(client, "orders")
        values = fill(client, "orders", 20, 10 * KIB)
        found: list[bytes | None] = []
        while len(found) < len(values):
            data = client.fetch_one("orders", len(found), partition_max_bytes=60 * KIB)
            found += values_of(data)
        assert found == values
        assert broker.stop() == 0


def test_44_members_of_a_share_group_get_views_and_nobody_reads_them(tmp_path: Path) -> None:
    """The kernel refuses to send them; then the log is read, and the same records come again."""
    module = "tests.support.faulting_maps_broker"
    with BrokerProcess(tmp_path, config=CONFIG, module=module) as broker:
        queue = Queue(broker.bootstrap)
        values = fill(queue.client, queue.topic, 4)
        member = queue.member()
        with pytest.raises(ConnectionError):
            _fetch_nothing_until_closed(member)
        assert broker.alive
        # The records of the closed connection are free again, and go to the next member.
        found: list[bytes | None] = []
        again = queue.member()
        partitions: tuple[int, ...] = (0,)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < 4 and time.monotonic() < deadline:
            rows = partitions_of(again.fetch(partitions, max_wait_ms=WAIT_MS, max_records=4))
            partitions = ()
            found += [value for row in rows.values() for value in values_of(row)]
        assert found == values
        queue.close()
        assert "could not be sent" in broker.log_text()
        assert broker.stop() == 0


def test_44_small_answers_to_members_of_a_share_group_have_no_views(tmp_path: Path) -> None:
    module = "tests.support.faulting_maps_broker"
    with BrokerProcess(tmp_path, config=CONFIG, module=module) as broker:
        queue = Queue(broker.bootstrap)
        values = fill(queue.client, queue.topic, 20, 20 * KIB)
        member = queue.member()
        found: list[bytes | None] = []
        partitions: tuple[int, ...] = (0,)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(found) < len(values) and time.monotonic() < deadline:
            rows = partitions_of(member.fetch(partitions, max_wait_ms=WAIT_MS, max_records=2))
            partitions = ()
            found += [value for row in rows.values() for value in values_of(row)]
        assert found == values
        queue.close()
        assert broker.stop() == 0


def test_41_a_slow_client_gets_every_byte_of_a_deleted_segment(tmp_path: Path) -> None:
    """The disk space of the segment is free when it has."""
    config = {**CONFIG, "log.retention.check.interval.ms": "100"}
    with BrokerProcess(tmp_path, config=config) as broker, RawClient(broker.bootstrap) as client:
        limits = {"segment.bytes": 8 * MIB, "retention.bytes": MIB // 2, "file.delete.delay.ms": 0}
        create(client, "orders", {key: str(value) for key, value in limits.items()})
        values = fill(client, "orders", 39)
        pid = broker.process.pid
        with RawClient(broker.bootstrap) as slow:
            slow.wait_longer(PATIENCE_SECONDS)
            slow.keep_waiting()
            slow.send("fetch", 12, fetch_request({("orders", 0): 0}, partition_max_bytes=8 * MIB))
            _wait_until(lambda: broker.stats()["unsent"] > 0)
            fill(client, "orders", 4)  # begins another segment
            _wait_until(lambda: bool(_deleted(pid)))
            _, answer = slow.receive("fetch", 12)
            assert values_of(answer.responses[0].partitions[0]) == values
        _wait_until(lambda: not _deleted(pid))
        assert broker.stop() == 0


def test_41_a_slow_client_gets_every_byte_of_a_deleted_topic(tmp_path: Path) -> None:
    """And so does a client of the topic that has its name by then: its own bytes."""
    config = {**CONFIG, "log.retention.check.interval.ms": "100"}
    with BrokerProcess(tmp_path, config=config) as broker, RawClient(broker.bootstrap) as client:
        create(client, "orders", {"file.delete.delay.ms": "0"})
        values = fill(client, "orders", 39)
        pid = broker.process.pid
        with RawClient(broker.bootstrap) as slow:
            slow.wait_longer(PATIENCE_SECONDS)
            slow.keep_waiting()
            slow.send("fetch", 12, fetch_request({("orders", 0): 0}, partition_max_bytes=8 * MIB))
            _wait_until(lambda: broker.stats()["unsent"] > 0)
            gone = client.ask("delete_topics", 5, DeleteTopicsRequest(topic_names=["orders"]))
            assert gone.responses[0].error_code == ErrorCode.NONE
            _wait_until(lambda: bool(_deleted(pid)))
            create(client, "orders")
            assert client.produce("orders", batch(b"new")).error_code == ErrorCode.NONE
            assert values_of(client.fetch_one("orders", 0)) == [b"new"]
            _, answer = slow.receive("fetch", 12)
            assert values_of(answer.responses[0].partitions[0]) == values
        _wait_until(lambda: not _deleted(pid))
        assert broker.stop() == 0


def _fetch_nothing_until_closed(member: ShareMember) -> None:
    """Fetches come back without records while the group's state is being loaded."""
    partitions: tuple[int, ...] = (0,)
    while True:
        rows = partitions_of(member.fetch(partitions, max_wait_ms=WAIT_MS, max_records=4))
        assert not any(row.acquired_records for row in rows.values())
        partitions = ()


def _deleted(pid: int) -> list[str]:
    """Logs that the process keeps open or mapped although they have no name any more."""
    opened = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            opened.append(str(entry.readlink()))
    mapped = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [text for text in (*opened, *mapped) if ".log" in text and text.endswith("(deleted)")]


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
