"""Settings of tables: keys of topics, and the file for brokers that do not know them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ottla.metadata.errors import InvalidConfig
from ottla.tables.errors import BadTableSetting
from ottla.tables.settings import (
    MAX_FILE_BYTES,
    TablesFile,
    read_tables_file,
    topic_settings,
    worker_settings,
)

if TYPE_CHECKING:
    from pathlib import Path

ON = {"ottla.table.enable": "true"}


def test_a_topic_is_no_table_unless_it_says_so() -> None:
    assert topic_settings("orders", {}) is None
    assert topic_settings("orders", {"ottla.table.enable": "false"}) is None


def test_defaults() -> None:
    found = topic_settings("eu.orders-2", ON)
    assert found is not None
    assert (found.table, found.partition, found.headers) == ("eu_orders_2", "day(_timestamp)", True)
    assert (found.commit_interval, found.start_time) == (60.0, None)


@pytest.mark.parametrize(
    ("start", "time"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T12:30Z", datetime(2026, 11, 1, 12, 30, tzinfo=UTC)),
        ("2026-11-01T12:30:05+02:00", datetime(2026, 11, 1, 10, 30, 5, tzinfo=UTC)),
    ],
)
def test_a_table_can_begin_at_a_time(start: str, time: datetime) -> None:
    found = topic_settings("orders", {**ON, "ottla.table.start": start})
    assert found is not None
    assert found.start_time == time


def test_a_day_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadTableSetting, match=r"ottla\.table\.start of topic 'orders'"):
        topic_settings("orders", {**ON, "ottla.table.start": "2026-02-30"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("commit.interval.ms", "999"),
        ("name", "or/ders"),
        ("partition", "year(_timestamp)"),
        ("start", "yesterday"),
        ("target.file.bytes", "1"),
    ],
)
def test_values_are_checked_as_by_the_broker(key: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=key):
        topic_settings("orders", {**ON, f"ottla.table.{key}": value})


def test_a_file_has_keys_of_the_worker_and_of_topics(tmp_path: Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(
        'ottla.table.warehouse = "file:///w"\n[topics.orders]\nottla.table.enable = true\n'
        '[topics."a.b"]\n"ottla.table.commit.interval.ms" = 5000\n'
    )
    assert read_tables_file(path) == TablesFile(
        {"ottla.table.warehouse": "file:///w"},
        {
            "orders": {"ottla.table.enable": "true"},
            "a.b": {"ottla.table.commit.interval.ms": "5000"},
        },
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a =", "is not TOML"),
        ("a = 1", "a is not a key of the worker"),
        ("topics = 1", "expected"),
        ("[topics.orders]\nenable = true", "enable of topic 'orders' is not one of"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(text)
    with pytest.raises(BadTableSetting, match=said):
        read_tables_file(path)


def test_a_file_that_is_missing_or_huge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTableSetting, match="cannot read"):
        read_tables_file(tmp_path / "none.toml")
    path = tmp_path / "huge.toml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadTableSetting, match="more than"):
        read_tables_file(path)


@pytest.mark.parametrize("url", ["ftp://x/y", "memory:", "file://relative", "s3://"])
def test_a_warehouse_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(BadTableSetting, match=r"ottla\.table\.warehouse"):
        worker_settings(url, "sqlite:///x", "ottla", {})
