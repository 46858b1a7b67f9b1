"""The object stores that the storage tests run on, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.objects.location import open_store, parse_location
from tests.support.s3 import minio_program, minio_server, moto_server, rsm_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
