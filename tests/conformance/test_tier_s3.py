"""Tiered storage of a broker on S3 servers: moto's, and MinIO where it is installed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ottla.objects.location import open_store, parse_location
from ottla.testing.embedded import EmbeddedBroker
from tests.support.s3 import minio_program, minio_server, moto_server, rsm_config
from tests.support.tiered_broker import TierPlace, consume, eventually, settings, share

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["moto", pytest.param("MinIO", marks=pytest.mark.long)])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "moto":
        with moto_server() as url:
            yield url
        return
    if minio_program() is None:
        pytest.skip("MinIO is not installed; tests/support/s3.py says how")
    (tmp_path / "objects").mkdir()
    with minio_server(tmp_path / "objects") as url:
        yield url


def test_a_broker_on_s3(endpoint: str, tmp_path: Path) -> None:
    config = settings(tmp_path) | rsm_config(endpoint, "cluster") | {"remote.delete.grace.ms": "0"}
    with EmbeddedBroker(tmp_path / "data", config=config) as broker:
        place = TierPlace(broker, tmp_path)
        topic = place.topic()
        sent = place.cold(topic)
        assert consume(broker.bootstrap, topic, len(sent)) == sent
        assert share(broker.bootstrap, topic, len(sent)) == sent
        broker.delete_topic(topic)
        eventually(lambda: not asyncio.run(objects(config)), "its objects go")
        assert not place.tiering.errors()
        place.close()


async def objects(config: dict[str, str]) -> list[str]:
    location = parse_location(config)
    return [one.key async for one in open_store(location).list(location.prefix)]
