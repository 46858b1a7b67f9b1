"""Tests with a real broker in the test process: nothing to install beside, nothing to clean up.

    python -m pytest examples/pytest_orders.py

`ottla_broker` and `ottla_topic` come with the package; any Kafka client can be used.
"""

# %%
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

import ottla
from ottla.sync import Reader

if TYPE_CHECKING:
    from pathlib import Path


# %% The program to test: it uses Kafka through any client.
class Shop:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})

    def order(self, article: str, amount: int) -> None:
        if amount < 1:
            raise ValueError(f"order at least one {article}")
        value = json.dumps({"article": article, "amount": amount})
        self._producer.produce(self._topic, value, key=article)

    def close(self) -> None:
        self._producer.flush()


def values(bootstrap: str, topic: str) -> list[dict[str, object]]:
    with Reader(bootstrap, topic, stop="latest") as reader:
        return [json.loads(record.value or b"") for record in reader.records()]


# %% One broker serves all tests of a session, each with a topic of its own.
def test_an_order_is_written(ottla_broker: ottla.EmbeddedBroker, ottla_topic: str) -> None:
    shop = Shop(ottla_broker.bootstrap, ottla_topic)
    shop.order("book", 4)
    shop.close()
    assert values(ottla_broker.bootstrap, ottla_topic) == [{"article": "book", "amount": 4}]


def test_a_bad_order_is_not(ottla_broker: ottla.EmbeddedBroker, ottla_topic: str) -> None:
    shop = Shop(ottla_broker.bootstrap, ottla_topic)
    with pytest.raises(ValueError, match="at least one book"):
        shop.order("book", 0)
    shop.close()
    assert values(ottla_broker.bootstrap, ottla_topic) == []


# %% A broker of the test's own: with settings, or with a directory that survives a restart.
def test_orders_survive_a_restart(tmp_path: Path) -> None:
    with ottla.EmbeddedBroker(tmp_path, config={"num.partitions": "3"}) as broker:
        shop = Shop(broker.bootstrap, "orders")
        shop.order("book", 4)
        shop.close()
    with ottla.EmbeddedBroker(tmp_path) as broker:
        assert values(broker.bootstrap, "orders") == [{"article": "book", "amount": 4}]
