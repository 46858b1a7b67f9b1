"""A disk that is really full: a small file system of its own, shared by logs and metadata.

Needs a system on which the user may mount something in a namespace; `test_disk.py` has the same
errors from a simulated disk.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from ottla.broker.running import reserve
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess
from tests.support.raw_client import RawClient, batch, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
SIZE: Final = "4m"
BALLAST_BYTES: Final = 1024 * 1024
VALUE_BYTES: Final = 60_000
MOST: Final = 1000  # records: many times what fits


@contextmanager
def small_disk(path: Path) -> Iterator[Sequence[str]]:
    """What to put before a command that is to see the disk; it lasts as long as the block."""
    path.mkdir()
    is_root = os.geteuid() == 0
    own_user = () if is_root else ("--user", "--map-root-user")
    same_user = () if is_root else ("--user", "--preserve-credentials")
    mount = f'mount -t tmpfs -o size={SIZE} tmpfs "$0" && echo mounted && exec cat'
    with subprocess.Popen(
        ["unshare", *own_user, "--mount", "sh", "-c", mount, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() != "mounted\n":
                pytest.skip("this user may not mount anything (user namespaces are forbidden)")
            yield ("nsenter", f"--target={holder.pid}", *same_user, "--mount", f"--wd={Path.cwd()}")
        finally:
            holder.stdin.close()


def create(client: RawClient, topic: str) -> ErrorCode:
    request = CreateTopicsRequest([CreatableTopic(topic, 1, -1)], timeout_ms=20_000)
    (made,) = client.ask("create_topics", 5, request).topics
    return ErrorCode(made.error_code)


def write(client: RawClient, topic: str, number: int) -> tuple[ErrorCode, int]:
    told = client.produce(topic, batch(b"%08d" % number + bytes(VALUE_BYTES)))
    return ErrorCode(told.error_code), told.base_offset


def numbers(client: RawClient, topic: str) -> dict[int, int]:
    """What the topic holds, by offset."""
    found: dict[int, int] = {}
    while True:
        data = client.fetch_one(topic, len(found))
        assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code)
        more = records_of(data)
        if not more:
            return found
        for record in more:
            assert record.value is not None
            found[record.offset] = int(bytes(record.value[:8]))


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    acknowledged: dict[int, int] = {}
    with small_disk(data) as within:
        ballast = data / "ballast"
        subprocess.run([*within, "fallocate", "-l", str(BALLAST_BYTES), ballast], check=True)
        with BrokerProcess(tmp_path, under=within) as broker:
            with RawClient(broker.bootstrap) as client:
                assert create(client, "orders") == ErrorCode.NONE
                assert create(client, "quiet") == ErrorCode.NONE
                assert write(client, "quiet", 7)[0] == ErrorCode.NONE
                for number in range(MOST):
                    code, offset = write(client, "orders", number)
                    if code != ErrorCode.NONE:
                        break
                    acknowledged[offset] = number
                assert acknowledged
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                # What is there is served, and what cannot be done is told.
                assert numbers(client, "quiet") == {0: 7}
                fill(within, data)
                assert create(client, "refused") == ErrorCode.KAFKA_STORAGE_ERROR
                assert broker.alive
                subprocess.run([*within, "rm", ballast, data / "filling"], check=True)
                assert create(client, "later") == ErrorCode.NONE, "with room again"
                assert write(client, "later", 8)[0] == ErrorCode.NONE
                assert write(client, "quiet", 9)[0] == ErrorCode.NONE
            broker.kill()
            broker.start()
            with RawClient(broker.bootstrap) as client:
                found = numbers(client, "orders")
                assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
                assert numbers(client, "quiet") == {0: 7, 1: 9}
                assert numbers(client, "later") == {0: 8}
                assert write(client, "orders", MOST)[0] == ErrorCode.NONE
            assert broker.stop() == 0


def test_a_broker_with_a_full_disk_is_restarted_and_serves_reads(tmp_path: Path) -> None:
    """SQLite could not write the registration; a reserve is given up for it."""
    data = tmp_path / "data"
    with small_disk(data) as within, BrokerProcess(tmp_path, under=within) as broker:
        with RawClient(broker.bootstrap) as client:
            for topic in ("orders", "old"):
                assert create(client, topic) == ErrorCode.NONE
                assert write(client, topic, 1)[0] == ErrorCode.NONE
        assert broker.stop() == 0
        fill(within, data)
        broker.start()
        with RawClient(broker.bootstrap) as client:
            assert numbers(client, "orders") == {0: 1}
            fill(within, data)
            assert write(client, "orders", 2)[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert f"{reserve.FILE} was deleted" in broker.log_text()
        broker.kill()
        fill(within, data)
        # With nothing left to give up it says what to do.
        broker.spawn()
        assert broker.process.wait(PATIENCE_SECONDS) != 0
        broker.kill()
        assert "KiB are free on its disk: make room for 256" in broker.log_text()
        subprocess.run([*within, "rm", data / "filling"], check=True)
        broker.start()
        with RawClient(broker.bootstrap) as client:
            assert numbers(client, "orders") == {0: 1}
            assert write(client, "orders", 2)[0] == ErrorCode.NONE
        subprocess.run([*within, "test", "-s", data / reserve.FILE], check=True)


def fill(within: Sequence[str], data: Path) -> None:
    """Take the last bytes."""
    command = [*within, "dd", "if=/dev/zero", f"of={data / 'filling'}", "bs=1k"]
    subprocess.run(command, check=False, capture_output=True)
