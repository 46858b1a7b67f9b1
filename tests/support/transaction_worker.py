"""Reads numbers, writes each to two partitions and goes on, all in transactions: to be killed.

Run as a module: BOOTSTRAP SOURCE SINK NAME SEED END END. NAME is its group and transactional id. It
says a line for each transaction that it has committed, and ends with status 0 when the group is at
the END of both partitions of SOURCE. Now and then it aborts a transaction and does it again.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

PATIENCE: Final = 60.0
POLL_SECONDS: Final = 0.2
LARGEST: Final = 6  # records in a transaction
ABORTS: Final = 0.1
GAVE_UP: Final = 3  # the status of one that another has replaced, or that cannot go on
# librdkafka 2.16: a call that sends offsets never returns, whatever its timeout, if the node with
# the group's coordinator has been missing in an answer to Metadata, which is so after a take-over
# (confluentinc/librdkafka#5511). Only another process gets on then.
OFFSETS_PATIENCE: Final = 8.0


class Worker:
    def __init__(self, bootstrap: str, source: str, sink: str, name: str, seed: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            # librdkafka 2.16 forgets its brokers when all of them are down, but goes on to send
            # offsets to the one it has forgotten.
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
        }
        self._source, self._sink = source, sink
        self._chance = random.Random(seed)
        self._producer = Producer(
            {**settings, "transactional.id": name, "transaction.timeout.ms": 30_000}
        )
        self._consumer = Consumer(
            {
                **settings,
                "group.id": name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

    def run(self, ends: list[int]) -> None:
        self._producer.init_transactions(PATIENCE)
        self._rewind()
        while [max(0, at.offset) for at in self._committed()] != ends:
            messages = self._consumer.consume(self._chance.randint(1, LARGEST), POLL_SECONDS)
            if not messages:
                continue
            self._producer.begin_transaction()
            try:
                for message in messages:
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    for partition in (0, 1):
                        self._producer.produce(self._sink, message.value(), partition=partition)
                self._send_offsets()
                if self._chance.random() < ABORTS:
                    self._again()
                else:
                    self._producer.commit_transaction(PATIENCE)
                    print(len(messages), flush=True)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                self._again()

    def _send_offsets(self) -> None:
        watchdog = threading.Timer(OFFSETS_PATIENCE, _give_up, ["offsets are not sent"])
        watchdog.daemon = True
        watchdog.start()
        try:
            self._producer.send_offsets_to_transaction(
                self._consumer.position(self._consumer.assignment()),
                self._consumer.consumer_group_metadata(),
                PATIENCE,
            )
        finally:
            watchdog.cancel()

    def _again(self) -> None:
        self._producer.abort_transaction(PATIENCE)
        self._rewind()

    def _rewind(self) -> None:
        self._consumer.assign(
            [TopicPartition(at.topic, at.partition, max(0, at.offset)) for at in self._committed()]
        )

    def _committed(self) -> list[TopicPartition]:
        asked = [TopicPartition(self._source, partition) for partition in (0, 1)]
        return self._consumer.committed(asked, PATIENCE)


def main(bootstrap: str, source: str, sink: str, name: str, seed: str, *ends: str) -> None:
    try:
        Worker(bootstrap, source, sink, name, int(seed)).run([int(end) for end in ends])
    except KafkaException as error:
        _give_up(error)


def _give_up(reason: object) -> None:
    print(f"given up: {reason}", file=sys.stderr, flush=True)
    # Not sys.exit: librdkafka may wait for ever for what the producer has not done yet.
    os._exit(GAVE_UP)


if __name__ == "__main__":
    main(*sys.argv[1:])
