"""librdkafka's share consumer for tests: members in threads and in processes that can be killed.

`Ledger` is what members were given and what was acknowledged for good: a record counts as accepted
when the broker has confirmed it to the member that held it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE: Final = 60.0
HELD: Final = "held"
BATCH: Final = 50  # records in a batch; what a member is given are whole batches


def share_consumer(bootstrap: str, group: str, topic: str, **config: Any) -> ShareConsumer:
    """One that is subscribed; underscores stand for dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.subscribe([topic])
    return consumer


def set_group(bootstrap: str, group: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE)


def produce_numbers(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """Each number is a record, and is there once."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": BATCH,
        }
    )
    failed: list[Any] = []

    def note(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for number in numbers:
        while True:
            try:
                producer.produce(topic, str(number).encode(), partition=0, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(PATIENCE) == 0
    assert not failed


def poll_until(consumer: ShareConsumer, count: int, *, patience: float = PATIENCE) -> list[Any]:
    """Messages until there are `count`."""
    found: list[Any] = []
    deadline = time.monotonic() + patience
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        found += messages(consumer, 0.5)
    return found


def messages(consumer: ShareConsumer, timeout: float) -> list[Any]:
    found = list(consumer.poll(timeout))
    for message in found:
        assert message.error() is None, message.error()
    return found


def offsets_of(found: Iterable[Any]) -> set[int]:
    return {message.offset() for message in found}


class Ledger:
    """Filled by many members at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.delivered: dict[int, list[int]] = {}
        """Delivery counts by offset, in the order in which members told of them."""
        self.accepted: dict[int, int] = {}
        """By offset, how often it was accepted."""
        self.in_doubt: set[int] = set()
        """Accepted by a member that was not told whether that was done."""
        self.came_back: set[int] = set()
        """Delivered although it had been accepted."""

    def deliver(self, found: Iterable[Any]) -> None:
        with self._lock:
            self.came_back |= offsets_of(found) & self.accepted.keys()
            for message in found:
                self.delivered.setdefault(message.offset(), []).append(message.delivery_count())

    def accept(self, offsets: set[int], *, confirmed: bool) -> None:
        with self._lock:
            if not confirmed:
                self.in_doubt |= offsets
                return
            for offset in offsets:
                self.accepted[offset] = self.accepted.get(offset, 0) + 1


class Accepting(threading.Thread):
    """A member that accepts all it gets, and writes down what was confirmed.

    `hold` is how many seconds it takes for that.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        ledger: Ledger,
        *,
        hold: float = 0,
        **config: Any,
    ) -> None:
        super().__init__(name=f"member of {group}")
        self._hold = hold
        self._config = {"share_acknowledgement_mode": "explicit", **config}
        self._where = bootstrap, group, topic
        self._ledger = ledger
        self._stopping = threading.Event()
        self.error: BaseException | None = None

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # raised again by stop()
            self.error = error

    def _work(self) -> None:
        consumer = share_consumer(*self._where, **self._config)
        try:
            while not self._stopping.is_set():
                found = [m for m in consumer.poll(0.2) if m.error() is None]
                self._ledger.deliver(found)
                time.sleep(self._hold)
                for message in found:
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                if found:
                    self._ledger.accept(offsets_of(found), confirmed=confirmed(consumer))
        finally:
            with suppress(KafkaException):
                consumer.close()


def confirmed(consumer: ShareConsumer) -> bool:
    """Whether the broker took what was acknowledged; of one partition that is all or nothing."""
    try:
        results = consumer.commit_sync(PATIENCE)
    except KafkaException:
        return False
    return bool(results) and all(error is None for error in results.values())


class HoldingProcess:
    """A member in a process of its own that gets records and holds them until it is killed."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.share_workers", bootstrap, group, topic],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def held(self) -> set[int]:
        """The offsets it got; waits for the first of them."""
        assert self._process.stdout is not None
        word, *offsets = self._process.stdout.readline().split()
        assert word == HELD
        return set(map(int, offsets))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()


def main(bootstrap: str, group: str, topic: str) -> None:
    consumer = share_consumer(bootstrap, group, topic, share_acknowledgement_mode="explicit")
    found = poll_until(consumer, 1)
    print(HELD, *(message.offset() for message in found), flush=True)
    time.sleep(10 * PATIENCE)


if __name__ == "__main__":
    main(*sys.argv[1:])
