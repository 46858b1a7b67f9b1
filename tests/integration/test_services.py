"""The servers that other tests stand on: they answer, and leave nothing behind."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest
import redis

from tests import services
from tests.support import shared_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services import PostgresServer, RedisServer


def test_redis_answers(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_postgres_answers(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.url) as connection:
        assert connection.execute("SELECT 42").fetchone() == (42,)


def test_a_stopped_server_is_gone_with_its_directory() -> None:
    with services.running_redis() as server:
        assert server.directory.exists()
    assert not server.directory.exists()
    with redis.Redis.from_url(server.url) as client, pytest.raises(redis.ConnectionError):
        client.ping()


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr(services, "POSTGRES_HOMES", ())
    with pytest.raises(services.ServerMissing, match="redis-server is not installed"):
        services.running_redis().__enter__()
    with pytest.raises(services.ServerMissing, match="PostgreSQL is not installed"):
        services.running_postgres().__enter__()


def test_one_kafka_serves_all_workers_and_ends_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are stood in for by threads, and the broker by notes of its start and end."""
    notes: list[str] = []

    @contextmanager
    def noted(**_: object) -> Iterator[SimpleNamespace]:
        notes.append("started")
        yield SimpleNamespace(bootstrap="here:9092")
        notes.append("stopped")

    monkeypatch.setattr(shared_kafka, "ApacheKafka", noted)
    first, second = (shared_kafka.shared_kafka(tmp_path) for _ in range(2))
    assert [first.__enter__(), second.__enter__()] == ["here:9092"] * 2
    ending = Thread(target=first.__exit__, args=(None, None, None))
    ending.start()
    while (tmp_path / "bootstrap").exists():  # until it waits for the others
        time.sleep(0.01)
    assert notes == ["started"]
    second.__exit__(None, None, None)
    ending.join()
    assert notes == ["started", "stopped"]
