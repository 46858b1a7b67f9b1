"""The object stores that the storage tests run on, by name; a log to be copied to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.objects.location import open_store, parse_location
from ottla.tier.store.storage_manager import RemoteStorageManager
from tests.support.s3 import minio_program, minio_server, moto_server, rsm_config
from tests.support.tier_copies import FailingStore
from tests.support.tier_logs import make_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.log.partition import PartitionLog
    from ottla.objects.store import ObjectStore


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def minio_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if minio_program() is None:
        pytest.skip("MinIO is not installed; tests/support/s3.py says how to get it")
    with minio_server(tmp_path_factory.mktemp("minio")) as endpoint:
        yield endpoint


MINIO = pytest.param("s3-minio", marks=pytest.mark.long)


@pytest.fixture(params=["local-directory", "obstore-memory", "s3-moto", MINIO])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """One store after the other; the name of the test says which."""
    kind: str = request.param
    if kind == "local-directory":
        return open_store(parse_location({"rsm.config.url": f"file://{tmp_path}/store"}))
    if kind == "obstore-memory":
        return open_store(parse_location({"rsm.config.url": "memory:"}))
    server = kind.removeprefix("s3-")
    endpoint: str = request.getfixturevalue(f"{server}_endpoint")
    return open_store(parse_location(rsm_config(endpoint, "")))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    made = make_log(tmp_path / "log", batches=120, epochs=3, aborts=True)
    yield made
    made.close()


@pytest.fixture
def storage(tmp_path: Path) -> RemoteStorageManager:
    return RemoteStorageManager(FailingStore(tmp_path / "store"), "", "cluster-1")
