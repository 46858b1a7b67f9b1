"""Settings shared by all parts of the demo: names, places, sizes. Children get them as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.demo.orders import make_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.demo.orders import Order

ORDERS: Final = "orders"
DEAD_LETTERS: Final = "dlq.orders"
SALES: Final = "sales"
PARTITIONS: Final = 3
NODES: Final = 3

INSIDE: Final = "INSIDE"
SHOPS: Final = "SHOPS"

WAREHOUSE_GROUP: Final = "warehouse"
SALES_GROUP: Final = "sales-report"
LEDGER_CONSUMER: Final = "ledger"

# How often an order is tried before it is given up. The same order may be in the hands of a worker
# at each of the three crashes that are planned, and is not to be given up for that.
DELIVERY_LIMIT: Final = 5

BROKER_SETTINGS: Final = {
    "listeners": f"{INSIDE}://127.0.0.1:0,{SHOPS}://127.0.0.1:0",
    "listener.security.protocol.map": f"{INSIDE}:PLAINTEXT,{SHOPS}:SASL_SSL",
    "inter.broker.listener.name": INSIDE,
    f"listener.name.{SHOPS.lower()}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    # Who comes in by INSIDE, which is loopback, may do everything; others what ACLs allow.
    "authorizer.class.name": "standard",
    "super.users": "User:ANONYMOUS",
    "group.share.assignment.interval.ms": "0",
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.max.partition.max.record.locks": "100000",
}
# Segments are small and leave the local disk early: a day's work of tiering in a minute.
ORDERS_SETTINGS: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1024 * 1024),
    "segment.ms": "1500",
    "local.retention.ms": "1500",
    "file.delete.delay.ms": "0",
}
DEAD_LETTER_SETTINGS: Final = {"errors.deadletterqueue.group.enable": "true"}
# A worker that crashes keeps its partitions until its session ends, and workers of other partitions
# have no part in them meanwhile: the session is short where crashes are planned.
WAREHOUSE_SETTINGS: Final = {
    "share.session.timeout.ms": "4000",
    "share.heartbeat.interval.ms": "1000",
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": str(DELIVERY_LIMIT),
    "errors.deadletterqueue.topic.name": DEAD_LETTERS,
}
# Spark comes late, and takes all that has been waiting in one batch.
SALES_GROUP_SETTINGS: Final = {"share.partition.max.record.locks": "100000"}


class Stage(NamedTuple):
    """One run: where files are, which orders are made, and where the broker is once it serves."""

    directory: str
    orders: int
    seed: int
    begin_ms: int
    bootstrap: str = ""
    shops: str = ""
    """The secured listener."""
    console: str = ""

    def to_json(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Stage:
        return cls(**json.loads(text))

    def make_orders(self) -> Iterator[Order]:
        return make_orders(self.orders, seed=self.seed, begin_ms=self.begin_ms)

    @property
    def broker_data(self) -> Path:
        return Path(self.directory) / "broker"

    @property
    def tier(self) -> Path:
        return Path(self.directory) / "tier"

    @property
    def served(self) -> Path:
        """Where the broker tells its addresses."""
        return Path(self.directory) / "served.json"

    @property
    def tls(self) -> Path:
        return Path(self.directory) / "tls"

    @property
    def key_store(self) -> Path:
        return self.tls / "server.keystore.pem"

    @property
    def tables(self) -> Path:
        return Path(self.directory) / "tables"

    @property
    def warehouse_db(self) -> Path:
        return Path(self.directory) / "warehouse.db"

    @property
    def ledger_db(self) -> Path:
        return Path(self.directory) / "ledger.db"

    @property
    def sales_table(self) -> Path:
        return Path(self.directory) / "sales"

    @property
    def checkpoint(self) -> Path:
        return Path(self.directory) / "checkpoint"

    @property
    def logs(self) -> Path:
        return Path(self.directory) / "logs"
