"""Apache Kafka's Java clients, run against any broker: small programs compiled at first use.

Each call is a run of its own that takes and gives JSON lines; see jvm/JavaClient.java.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ottla.wire.records import NO_TIMESTAMP, Record
from tests.support.jvm import QUICK_START, java_command, own_classpath, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.support.java_tools import JavaTools

CALL_TIMEOUT: Final = 120.0

# A share group's first member learns of its partitions with a later heartbeat, 5 s apart.
SHARE_IDLE: Final = 15.0


class Delivery(NamedTuple):
    """A record and the partition it is in; how often it was delivered, if to a share group."""

    partition: int
    record: Record
    delivery_count: int | None = None


class GroupHistory(NamedTuple):
    """How many partitions the members had after each step, records read, offsets committed."""

    steps: list[list[int]]
    seen: int
    committed: dict[int, int]


class JavaClient:
    """Kafka's Java clients against any broker. Each call is a process, or a run of `tools`."""

    def __init__(self, bootstrap: str, tools: JavaTools | None = None) -> None:
        self.bootstrap = bootstrap
        self._tools = tools

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = None,
        transaction: Literal["none", "commit", "abort"] = "none",
        config: Mapping[str, str] | None = None,
    ) -> list[Delivery]:
        """Send `records`, whose offsets do not matter, and say where each of them is now."""
        records = list(records)
        lines = [json.dumps(_line(record, partition)) for record in records]
        answers = self._call(["produce", topic, transaction], config, "\n".join(lines))
        return [
            Delivery(
                at["partition"], record._replace(offset=at["offset"], timestamp=at["timestamp"])
            )
            for record, at in zip(records, answers, strict=True)
        ]

    def consume(
        self, topic: str, count: int, *, idle: float = 5.0, config: Mapping[str, str] | None = None
    ) -> list[Delivery]:
        """Records until there are `count`, or none for `idle` seconds.

        With a `group.id` the client subscribes; without one it reads all partitions from the start.
        A topic `~PATTERN` is a pattern that the broker resolves.
        """
        answers = self._call(["consume", topic, str(count), str(int(idle * 1000))], config)
        return [_delivery(answer) for answer in answers]

    def create(self, prefix: str, count: int, *, config: Mapping[str, str] | None = None) -> None:
        """Create so many topics, one after the other."""
        self._call(["create", prefix, str(count)], config)

    def copy(self, topic: str, to: str, count: int, *, group: str, transactional_id: str) -> None:
        """Copy `count` records in transactions that take the group's offsets along."""
        config = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "producer.transactional.id": transactional_id,
        }
        self._call(["copy", topic, to, str(count)], config)

    def seek(self, topic: str, timestamp: int) -> list[Delivery]:
        """The first record of each partition that is not older than `timestamp`, where any is."""
        return [_delivery(answer) for answer in self._call(["seek", topic, str(timestamp)], None)]

    def share_consume(
        self,
        topic: str,
        count: int,
        *,
        group: str,
        acknowledge: Literal["ACCEPT", "RELEASE", "REJECT"] = "ACCEPT",
        idle: float = SHARE_IDLE,
        config: Mapping[str, str] | None = None,
    ) -> list[Delivery]:
        """The same through a share group, every record acknowledged alike."""
        call = ["share-consume", topic, str(count), str(int(idle * 1000)), acknowledge]
        answers = self._call(call, {"group.id": group, **(config or {})})
        return [_delivery(answer) for answer in answers]

    def rebalance(
        self, topic: str, partitions: int, records: int, *, group: str, config: Mapping[str, str]
    ) -> GroupHistory:
        """Up to three members share a topic, come and go; see jvm/JavaGroups.java."""
        call = [topic, str(partitions), str(records), group]
        (answer,) = self._call(call, config, program="JavaGroups")
        committed = {int(index): offset for index, offset in answer["committed"].items()}
        return GroupHistory(answer["steps"], answer["seen"], committed)

    def _call(
        self,
        call: list[str],
        config: Mapping[str, str] | None,
        stdin: str = "",
        program: str = "JavaClient",
    ) -> list[dict[str, Any]]:
        settings = {"bootstrap.servers": self.bootstrap, **(config or {})}
        pairs = [f"{key}={value}" for key, value in settings.items()]
        if self._tools is not None:
            done = self._tools.run(program, *call, *pairs, stdin=stdin)
        else:
            command = java_command(
                program, *call, *pairs, classpath=own_classpath(), options=QUICK_START
            )
            done = run(command, stdin, CALL_TIMEOUT)
        if done.returncode != 0:
            raise RuntimeError(f"the Java client failed:\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def _line(record: Record, partition: int | None) -> dict[str, Any]:
    return {
        "partition": partition,
        "timestamp": None if record.timestamp == NO_TIMESTAMP else record.timestamp,
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "headers": [(key, _encoded(value)) for key, value in record.headers],
    }


def _delivery(line: dict[str, Any]) -> Delivery:
    record = Record(
        line["offset"],
        line["timestamp"],
        _decoded(line["key"]),
        _decoded(line["value"]),
        tuple((key, _decoded(value)) for key, value in line["headers"]),
    )
    return Delivery(line["partition"], record, line.get("deliveryCount"))


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
