"""Members of a consumer group that read a topic and commit, and what must be true of them."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaException

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message, TopicPartition

POLL_SECONDS: Final = 0.1
POLL_RECORDS: Final = 100


class Progress:
    """Filled by all members of a group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.read: set[tuple[int, int, bytes]] = set()
        """Partition, offset and value."""
        self.committed: dict[int, int] = {}
        """By partition, the highest position of which a member was told that it is stored."""
        self.fell_back: list[tuple[int, int, int]] = []
        """Partition, where a member began, and what had been committed before that."""

    def took(self, found: Iterable[Message], least: dict[int, int]) -> None:
        """Records of a member; `least` is where it may begin in partitions that are new to it."""
        with self._lock:
            for message in found:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                self.read.add((partition, offset, value))
                committed = least.pop(partition, 0)
                if offset < committed:
                    self.fell_back.append((partition, offset, committed))

    def stored(self, places: Iterable[TopicPartition]) -> None:
        with self._lock:
            for place in places:
                if place.error is None and place.offset > self.committed.get(place.partition, 0):
                    self.committed[place.partition] = place.offset

    def known(self, places: Iterable[TopicPartition]) -> dict[int, int]:
        with self._lock:
            return {place.partition: self.committed.get(place.partition, 0) for place in places}


class GroupMember(threading.Thread):
    """Commits after each poll that brought records."""

    def __init__(self, bootstrap: str, group: str, topic: str, progress: Progress) -> None:
        super().__init__(name=f"member of {group}", daemon=True)
        self._topic = topic
        self._progress = progress
        self._least: dict[int, int] = {}
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
            }
        )

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # raised again by stop()
            self._error = error
        finally:
            self._consumer.close()

    def _work(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        while not self._stopping.is_set():
            found = self._consumer.consume(POLL_RECORDS, POLL_SECONDS)
            records = [message for message in found if message.error() is None]
            self._progress.took(records, self._least)
            if records:
                with suppress(KafkaException):  # of a rebalance, or of a coordinator that died
                    stored = self._consumer.commit(asynchronous=False)
                    self._progress.stored(stored or ())

    def _assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._least = self._progress.known(places)
