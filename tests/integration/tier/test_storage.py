"""The storage manager and the stores under it: local directory, memory, S3."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from ottla.log.index import decode_aborted
from ottla.objects.errors import RemoteNotFound, RemoteStorageError, RetriableRemoteError
from ottla.objects.local import LocalStore
from ottla.objects.location import BadLocation, open_store, parse_location
from ottla.objects.store import PIECE_BYTES, AlreadyExists, ObjectReplaced
from ottla.tier.errors import CorruptRemoteData
from ottla.tier.store.layout import (
    CUSTOM_METADATA_SIZE,
    META_SUFFIX,
    CustomMetadata,
    Section,
    segment_id_of,
    topic_id_of,
)
from ottla.tier.store.storage_manager import LogPieces, LogSegmentData, RemoteStorageManager
from tests.support.s3 import rsm_config
from tests.support.tier_copies import put_file
from tests.support.tier_logs import Rolled, make_log, rolled
from tests.support.tiering import TIP, TOPIC_ID

if TYPE_CHECKING:
    from ottla.log.storage import Entry
    from ottla.objects.store import ObjectStore


def manager_on(store: ObjectStore) -> RemoteStorageManager:
    """Below a prefix of its own: servers are shared by the tests of a session."""
    return RemoteStorageManager(store, f"{uuid4()}/", "cluster-1")


def first_rolled(directory: Path, *, aborts: bool = False) -> Rolled:
    log = make_log(directory / "log", aborts=aborts)
    found = list(rolled(log))
    log.close()
    wanted = [one for one in found if one.metadata.txn_index_empty is not aborts]
    return wanted[0]


async def keys(manager: RemoteStorageManager) -> list[str]:
    return sorted([one.key async for one in manager.store.list(manager.prefix)])


@pytest.mark.parametrize("aborts", [False, True])
async def test_case_29_a_copy_is_the_file_and_its_sections(
    store: ObjectStore, tmp_path: Path, aborts: bool
) -> None:
    manager = manager_on(store)
    metadata, data = first_rolled(tmp_path, aborts=aborts)
    custom = await manager.copy_log_segment_data(metadata, data)
    assert len(custom) == CUSTOM_METADATA_SIZE == 49
    file = data.log.read_bytes()
    assert (await store.head(manager.key(metadata))).size == metadata.segment_size == len(file)
    assert await manager.fetch_log_segment(metadata, 0) == file
    manifest = await manager.fetch_manifest(manager.key(metadata, META_SUFFIX))
    present = [one for one in Section if manifest.custom.places[one].length]
    assert len(present) == (5 if aborts else 4)
    assert manifest.metadata.txn_index_empty is not aborts
    assert manifest.custom.encode() == custom
    finished = replace(metadata, custom_metadata=custom, state=manifest.metadata.state)
    assert manifest.metadata == finished
    for known in (metadata, finished):
        index = await manager.fetch_index(known, Section.OFFSET)
        assert index == data.offset_index.read_bytes()
        epochs = await manager.fetch_index(known, Section.LEADER_EPOCH)
        assert epochs == data.leader_epochs
    assert await manager.fetch_index(finished, Section.TIMESTAMP) == data.time_index.read_bytes()
    snapshot = await manager.fetch_index(finished, Section.PRODUCER_SNAPSHOT)
    assert snapshot == data.producer_snapshot.read_bytes()
    if aborts:
        assert decode_aborted(bytes(await manager.fetch_index(finished, Section.TRANSACTION)))
    else:
        with pytest.raises(RemoteNotFound):
            await manager.fetch_index(finished, Section.TRANSACTION)


async def test_a_copy_reads_the_log_it_was_begun_for(store: ObjectStore, tmp_path: Path) -> None:
    """The topic is deleted and created again before the copy has opened any file."""
    manager = manager_on(store)
    home = tmp_path / "t-0"
    log = make_log(home, aborts=True)
    metadata, paths = next(one for one in rolled(log) if not one.metadata.txn_index_empty)
    expected = paths.log.read_bytes()

    def entry(path: Path | Entry | None) -> Entry:
        assert path is not None
        return log.files / path.name

    data = LogSegmentData(
        entry(paths.log),
        entry(paths.offset_index),
        entry(paths.time_index),
        entry(paths.producer_snapshot),
        paths.leader_epochs,
        entry(paths.transaction_index),
    )
    index = data.offset_index.read_bytes()
    with log.lease():
        log.close(clean=False)
        home.rename(tmp_path / "t-0.deleted")
        make_log(home, aborts=False).close(clean=False)
        await manager.copy_log_segment_data(metadata, data)
    assert await manager.fetch_log_segment(metadata, 0) == expected
    assert await manager.fetch_index(metadata, Section.OFFSET) == index


async def test_case_55_meta_is_created_once(store: ObjectStore, tmp_path: Path) -> None:
    manager = manager_on(store)
    metadata, data = first_rolled(tmp_path)
    custom = await manager.copy_log_segment_data(metadata, data)
    assert await manager.copy_log_segment_data(metadata, data) == custom
    other = replace(metadata, broker_id=6)
    with pytest.raises(AlreadyExists):
        await manager.copy_log_segment_data(other, data)
    manifest = await manager.fetch_manifest(manager.key(metadata, META_SUFFIX))
    assert manifest.metadata.broker_id == 5


async def test_case_59_ranges(store: ObjectStore, tmp_path: Path) -> None:
    manager = manager_on(store)
    metadata, data = first_rolled(tmp_path)
    await manager.copy_log(metadata, data)
    file = data.log.read_bytes()
    assert await manager.fetch_log_segment(metadata, 10, 10) == file[10:11]
    assert await manager.fetch_log_segment(metadata, 10, 99) == file[10:100]
    assert await manager.fetch_log_segment(metadata, 10, 1 << 40) == file[10:]
    with pytest.raises(ValueError, match="no range"):
        await manager.fetch_log_segment(metadata, len(file))
    longer = replace(metadata, segment_size=len(file) + 1)
    with pytest.raises(CorruptRemoteData):
        await manager.fetch_log_segment(longer, 0)
    with pytest.raises(RemoteStorageError, match="metadata says"):
        await manager.copy_log(longer, data)


async def test_a_disk_that_fails_is_not_taken_for_a_store_that_does(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails is tried again, with the same file; here that would not help."""
    path = tmp_path / "large"
    path.write_bytes(bytes(PIECE_BYTES + 1))
    read = LogPieces._read

    def fail_later(self: LogPieces) -> bytes:
        if self.size:
            raise OSError("bad sector")
        return read(self)

    monkeypatch.setattr(LogPieces, "_read", fail_later)
    manager = manager_on(store)
    metadata, data = first_rolled(tmp_path)
    for bad in (replace(data, log=path), replace(data, log=tmp_path)):
        with pytest.raises(RemoteStorageError, match="cannot read") as caught:
            await manager.copy_log(metadata, bad)
        assert not isinstance(caught.value, RetriableRemoteError)
    assert await keys(manager) == []


async def test_case_59_deletion_can_be_repeated(store: ObjectStore, tmp_path: Path) -> None:
    manager = manager_on(store)
    metadata, data = first_rolled(tmp_path)
    await manager.delete_log_segment_data(metadata)
    await manager.copy_log_segment_data(metadata, data)
    assert [segment_id_of(key) for key in await keys(manager)] == [metadata.id.id] * 2
    await manager.delete_log_segment_data(metadata)
    await manager.delete_log_segment_data(metadata)
    assert await keys(manager) == []
    for read in (
        manager.fetch_log_segment(metadata, 0),
        manager.fetch_index(metadata, Section.OFFSET),
        store.head(manager.key(metadata)),
    ):
        with pytest.raises(RemoteNotFound):
            await read


async def test_case_59_an_object_that_was_replaced(store: ObjectStore, tmp_path: Path) -> None:
    key = f"{uuid4()}/x.log"
    path = tmp_path / "file"
    path.write_bytes(b"one")
    await put_file(store, key, path)
    etag = (await store.head(key)).etag
    assert bytes(await store.get_range(key, 0, 3, etag=etag)) == b"one"
    assert bytes(await store.get_tail(key, 2)) == b"ne"
    assert bytes(await store.get_tail(key, 9)) == b"one"
    path.write_bytes(b"two")
    await put_file(store, key, path)
    with pytest.raises(ObjectReplaced):
        await store.get_range(key, 0, 3, etag=etag)
    assert bytes(await store.get_range(key, 0, 3)) == b"two"


async def test_case_59_more_parts_than_one(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "large"
    content = os.urandom(1 << 20) * 20 + b"end"
    path.write_bytes(content)
    key = f"{uuid4()}/large.log"
    await put_file(store, key, path)
    assert (await store.head(key)).size == len(content)
    assert await store.get_range(key, len(content) - 5, len(content)) == content[-5:]


UPLOAD = """
import asyncio, resource, sys
from pathlib import Path
from ottla.objects.location import open_store, parse_location
from ottla.tier.store.storage_manager import LogPieces
config = dict(pair.split("=", 1) for pair in sys.argv[3:])
store = open_store(parse_location(config))
async def main():
    await store.put_pieces(sys.argv[2] + "warm", LogPieces(Path(__file__)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await store.put_pieces(sys.argv[2] + "large", LogPieces(Path(sys.argv[1])))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
asyncio.run(main())
"""


# Not moto: it holds what it is given in this process.
S3 = pytest.param("s3-minio", marks=pytest.mark.long)


@pytest.mark.parametrize("kind", ["local-directory", S3])
def test_case_59_the_size_of_an_upload_does_not_matter_to_memory(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    soak = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
    size = 1 << 30 if soak else 160 << 20
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(size)
    config = {"rsm.config.url": f"file://{tmp_path}/store"}
    if kind != "local-directory":
        config = rsm_config(request.getfixturevalue("minio_endpoint"), "")
    script = tmp_path / "upload.py"
    script.write_text(UPLOAD)
    pairs = [f"{key}={value}" for key, value in config.items()]
    grown = subprocess.run(
        [sys.executable, script, path, f"{uuid4()}/", *pairs],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not grown.returncode, grown.stderr
    assert int(grown.stdout) < 100 * 1024


async def test_a_store_that_is_away_is_retriable() -> None:
    config = {
        "rsm.config.url": "s3://bucket",
        "rsm.config.endpoint": "http://127.0.0.1:1",
        "rsm.config.access.key.id": "a",
        "rsm.config.secret.access.key": "b",
    }
    store = open_store(parse_location(config))
    with pytest.raises(RetriableRemoteError):
        await store.head("x")


async def test_a_missing_bucket_is_an_error(moto_endpoint: str) -> None:
    config = rsm_config(moto_endpoint, "") | {"rsm.config.url": "s3://no-such-bucket/x"}
    store = open_store(parse_location(config))
    with pytest.raises(RemoteStorageError):
        await store.put_new("x", b"")


async def test_credentials_and_endpoint_from_the_environment(
    moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = rsm_config(moto_endpoint, "")
    url = {"rsm.config.url": given["rsm.config.url"]}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["rsm.config.access.key.id"])
    with pytest.raises(RemoteStorageError, match=r"^s3://segments cannot be used: [^\n]+$"):
        open_store(parse_location(url))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["rsm.config.secret.access.key"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    store = open_store(parse_location(url))
    await store.put_new(f"{uuid4()}/x", b"content")


async def test_local_writes_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    await LocalStore(tmp_path).put_new("a/b/x.meta", b"content")
    base = str(tmp_path)
    assert synced[:2] + synced[3:] == [base, f"{base}/a", f"{base}/a/b"]
    assert synced[2].startswith(f"{base}/a/b/x.meta.")


@pytest.mark.parametrize("key", ["", "/x", "a//b", "../x", "a/./b"])
async def test_keys_stay_inside_the_directory(tmp_path: Path, key: str) -> None:
    with pytest.raises(RemoteStorageError):
        await LocalStore(tmp_path).put_new(key, b"")


async def test_concurrent_creates_of_one_object_have_one_winner(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    async def create(content: bytes) -> bool:
        with suppress(AlreadyExists):
            await store.put_new("x", content)
            return True
        return False

    won = await asyncio.gather(*(create(bytes([n]) * 1000) for n in range(8)))
    assert won.count(True) == 1
    assert bytes(await store.get_tail("x", 2000)) == bytes([won.index(True)]) * 1000


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix/"),
        ("s3://bucket", "s3://bucket/"),
        ("gs://bucket/x", "gs://bucket/x/"),
        ("az://container/x", "az://container/x/"),
        ("file:///var/tier/", "file:///var/tier/"),
        ("memory:", "memory:"),
    ],
)
def test_locations(url: str, shown: str) -> None:
    assert str(parse_location({"rsm.config.url": url})) == shown


@pytest.mark.parametrize(
    "url",
    ["", "bucket", "http://x/y", "s3://", "s3:///x", "file://host/x", "file:///", "s3://a:b@c/d"],
)
def test_locations_that_name_no_store(url: str) -> None:
    with pytest.raises(BadLocation, match=r"rsm\.config\.url"):
        parse_location({"rsm.config.url": url})


def test_secrets_stay_out_of_sight() -> None:
    found = parse_location(
        {"rsm.config.url": "s3://b", "rsm.config.secret.access.key": "hush", "other": "x"}
    )
    assert found.options == {"secret_access_key": "hush"}
    assert "hush" not in f"{found!r}{found}"


def test_keys_tell_topic_and_segment() -> None:
    assert topic_id_of("clicks-bx0sO0pZR4iXlqW0w9Lh8A", "clicks") == TOPIC_ID
    assert topic_id_of("clicks-bx0sO0pZR4iXlqW0w9Lh8A", "click") is None
    assert topic_id_of("clicks", "clicks") is None
    assert segment_id_of("a/b/readme.txt") is None
    assert CustomMetadata.decode(b"\x02" + bytes(48)) is None
    assert TIP.topic == "clicks"
