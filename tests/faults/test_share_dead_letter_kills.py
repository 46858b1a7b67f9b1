"""kill -9 with the dead letters written and their records not yet given up: none is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.dead_letters import read_letters
from tests.support.faults_broker import BrokerProcess
from tests.support.share_member import SHARE_CONFIG
from tests.support.share_workers import (
    confirmed,
    poll_until,
    produce_numbers,
    set_group,
    share_consumer,
)

if TYPE_CHECKING:
    from pathlib import Path

GROUP, TOPIC, LETTERS = "mourners", "mourned", "dlq.mourned"
RECORDS = 3


def test_a_kill_between_letter_and_state_costs_a_second_letter_not_the_first(
    tmp_path: Path,
) -> None:
    module = "tests.support.dead_letter_broker"
    with BrokerProcess(tmp_path, config=SHARE_CONFIG, module=module) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        topics = [NewTopic(TOPIC, 1, 1), NewTopic(LETTERS, 1, 1, config=enabled)]
        for created in admin.create_topics(topics).values():
            created.result()
        set_group(
            broker.bootstrap,
            GROUP,
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=LETTERS,
        )
        produce_numbers(broker.bootstrap, TOPIC, range(RECORDS))
        consumer = share_consumer(
            broker.bootstrap, GROUP, TOPIC, share_acknowledgement_mode="explicit"
        )
        for message in poll_until(consumer, RECORDS):
            consumer.acknowledge(message, AcknowledgeType.REJECT)
        assert not confirmed(consumer)
        assert broker.process.wait() < 0
        broker.kill()
        broker.start()
        # Nobody was told that they are gone, so they come again, and are mourned again.
        again = poll_until(consumer, RECORDS)
        for message in again:
            consumer.acknowledge(message, AcknowledgeType.REJECT)
        assert confirmed(consumer)
        letters = read_letters(broker.bootstrap, LETTERS, 2 * RECORDS)
        consumer.close()
    numbers = [int(one.value()) for one in letters]
    assert numbers == [*range(RECORDS), *range(RECORDS)]
