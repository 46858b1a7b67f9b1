"""kill -9 under share consumers: nothing accepted comes back, everything else does.

Three members of librdkafka accept records while the broker is killed and started again. What a
member was told is accepted must never be delivered again, to nobody. What nobody accepted must be
delivered after the restart. Between the two is what was accepted without an answer. The logs lose
what was not synced, too, and get it back from the journal (case 9 of the journal).
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.faults_broker import PATIENCE_SECONDS, BrokerProcess, soak
from tests.support.power import lose_power
from tests.support.raw_client import RawClient
from tests.support.seeds import run_seed
from tests.support.share_member import SHARE_CONFIG, described_offsets
from tests.support.share_workers import Accepting, Ledger, produce_numbers, set_group

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS: Final = 200 if soak() else 6
ROUND: Final = 2000  # records for each life of the broker, more than it lives to deliver
MAX_LIFE_SECONDS: Final = 0.3
HOLD_SECONDS: Final = 0.03  # long enough for most kills to meet records that are held
GROUP, TOPIC = "sharers", "shared"


def wait_for(done: Callable[[], bool], members: list[Accepting], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        for member in members:
            assert member.is_alive(), member.error
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_46_67_kill_9_keeps_what_was_accepted_and_returns_the_rest(tmp_path: Path) -> None:
    seed = run_seed()
    chance = random.Random(seed)
    ledger = Ledger()
    with BrokerProcess(tmp_path, config=SHARE_CONFIG) as broker:
        where = broker.bootstrap, GROUP, TOPIC
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
        set_group(broker.bootstrap, GROUP, share_auto_offset_reset="earliest")
        members = [
            Accepting(*where, ledger, hold=HOLD_SECONDS, max_poll_records=50) for _ in range(3)
        ]
        for member in members:
            member.start()
        sent = 0
        for _ in range(KILLS):
            before = len(ledger.accepted)
            produce_numbers(broker.bootstrap, TOPIC, range(sent, sent + ROUND))
            sent += ROUND
            wait_for(lambda n=before: len(ledger.accepted) > n, members, "no progress")  # type: ignore[misc]
            time.sleep(chance.uniform(0, MAX_LIFE_SECONDS))
            broker.kill()
            lose_power(tmp_path / "data", chance)
            broker.start()
        wait_for(
            lambda: len(ledger.accepted.keys() | ledger.in_doubt) == sent, members, "records lost"
        )
        with RawClient(broker.bootstrap) as client:
            wait_for(
                lambda: described_offsets(client, GROUP)[TOPIC, 0].lag == 0,
                members,
                "some are never accepted",
            )
        for member in members:
            member.stop()
        log = broker.log_text()
    again = sum(len(counts) - 1 for counts in ledger.delivered.values())
    print(
        f"{KILLS} kills, {sent} records, {again} delivered again, {len(ledger.in_doubt)} in doubt"
    )
    assert not ledger.came_back
    assert set(ledger.accepted.values()) == {1}
    assert set(range(sent)) - ledger.accepted.keys() <= ledger.in_doubt
    assert again, "no kill met a record that was held"
    assert "Traceback" not in log
