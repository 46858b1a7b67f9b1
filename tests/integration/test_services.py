"""The servers that other tests stand on: they answer, and leave nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
import redis

from tests import services

if TYPE_CHECKING:
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
