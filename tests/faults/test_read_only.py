"""A data directory that cannot be written, at the start and from some moment on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.error_codes import ErrorCode
from tests.support.faults_disk import FaultyStorage
from tests.support.raw_client import RawClient, batch, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PATIENCE_SECONDS: Final = 60.0
WRITING: Final = ("open", "pwritev", "fdatasync", "rename", "mkdir")
# Permissions do not bind root, a mount does; each process has a view of its own for it.
READ_ONLY_MOUNT: Final = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"',
)


def read_only(path: Path) -> Sequence[str]:
    """What to put before a command so that it cannot write there."""
    if os.geteuid() != 0:
        path.chmod(0o555)
        return ()
    prefix = (*READ_ONLY_MOUNT, str(path))
    tried = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"root may not mount here: {tried.stderr.decode().strip()}")
    return prefix


@pytest.mark.parametrize("used", [False, True])
def test_a_broker_does_not_start_there_and_says_why(tmp_path: Path, *, used: bool) -> None:
    path = tmp_path / "data"
    path.mkdir()
    if used:
        with EmbeddedBroker(path) as broker, RawClient(broker.bootstrap) as client:
            broker.create_topic("orders")
            assert client.produce("orders", batch(b"kept")).error_code == 0
    before = sorted(path.rglob("*"))
    prefix = read_only(path)
    command = [sys.executable, "-m", "ottla.cli", "broker", "--port", "0", "--data-dir", str(path)]
    try:
        ended = subprocess.run(
            [*prefix, *command], capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        path.chmod(0o755)
    assert ended.returncode == 2
    assert ended.stdout == ""
    (said,) = ended.stderr.splitlines()
    assert said.startswith("ottla broker: ")
    assert os.strerror(errno.EROFS if prefix else errno.EACCES) in said
    assert str(path) in said
    assert sorted(path.rglob("*")) == before
    if used:
        with EmbeddedBroker(path) as broker, RawClient(broker.bootstrap) as client:
            assert values_of(client.fetch_one("orders", 0)) == [b"kept"]


def test_a_broker_whose_disk_becomes_read_only_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file system does that the kernel remounts after an error."""
    disk = FaultyStorage()
    with monkeypatch.context() as patched:
        patched.setattr("ottla.broker.hosting.data.OsStorage", lambda: disk)
        broker = EmbeddedBroker(tmp_path)
        broker.start()
    with RawClient(broker.bootstrap) as client:
        for topic in ("orders", "quiet", "unwritten"):
            broker.create_topic(topic)
        for topic in ("orders", "quiet"):
            assert client.produce(topic, batch(b"before")).error_code == 0
        for call in WRITING:
            disk.break_(call, str(tmp_path), errno.EROFS)
        storage_error = ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce("orders", batch(b"refused")).error_code == storage_error
        assert client.produce("unwritten", batch(b"refused")).error_code == storage_error
        assert client.fetch_one("orders", 0).error_code == storage_error
        assert values_of(client.fetch_one("quiet", 0)) == [b"before"], "nothing was written there"
        assert client.topic("quiet").error_code == 0
    broker.stop()
    disk.repair()
    with EmbeddedBroker(tmp_path) as again, RawClient(again.bootstrap) as client:
        for topic in ("orders", "quiet"):
            (first, *more) = values_of(client.fetch_one(topic, 0))
            assert first == b"before"
            assert set(more) <= {b"refused"}  # not acknowledged: there or not
            assert client.produce(topic, batch(b"after")).error_code == 0
        assert client.produce("unwritten", batch(b"after")).error_code == 0
