"""Tiered storage through a broker: what leaves the local disk is read as if it had not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.tiered_broker import (
    TIERED,
    consume,
    eventually,
    local_logs,
    produce,
    share,
    stored,
    tiered_broker,
    values,
)

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "clicks"


def test_case_34_43_what_left_the_disk_is_read_from_the_store(tmp_path: Path) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    sent = values(5000)
    with tiered_broker(store, data) as broker:
        broker.create_topic(TOPIC, configs=TIERED)
        produce(broker.bootstrap, TOPIC, sent)
        eventually(lambda: local_logs(data, TOPIC)[0] > 3000, "local segments go")
        assert len(stored(store, ".log")) == len(stored(store, ".meta")) >= 4
        assert consume(broker.bootstrap, TOPIC, len(sent)) == sent
    with tiered_broker(store, data) as broker:
        assert consume(broker.bootstrap, TOPIC, len(sent)) == sent


def test_a_share_group_reads_what_left_the_disk(tmp_path: Path) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    sent = values(5000)
    with tiered_broker(store, data) as broker:
        broker.create_topic(TOPIC, configs=TIERED)
        produce(broker.bootstrap, TOPIC, sent)
        eventually(lambda: local_logs(data, TOPIC)[0] > 3000, "local segments go")
        assert share(broker.bootstrap, TOPIC, len(sent)) == sent
