"""kill -9 of workers, source processes and drivers, under a queue and under the log.

Each offset has to be in exactly one batch of each query, whatever was killed when. The sinks keep
a batch by its number, as a sink that can be repeated does.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from ottla.testing.embedded import EmbeddedBroker
from tests.support.faults_broker import soak
from tests.support.seeds import run_seed
from tests.support.spark_chaos import KINDS, ChaosDriver
from tests.support.spark_share import BROKER_CONFIG, lags, new_group
from tests.support.spark_source import fill, new_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS: Final = 30 if soak() else 2
# A driver takes long to start, and the one of `test_kills` is killed in every run.
VICTIMS: Final = ("worker", "source", "driver") if soak() else ("worker", "source")
ROUND: Final = 200  # records into each partition before a kill
PARTITIONS: Final = 2
MAX_LIFE_SECONDS: Final = 0.5
PATIENCE: Final = 300.0  # for a driver that has to start on a busy machine


def test_19_30_31_each_offset_is_in_one_batch_whatever_is_killed(tmp_path: Path) -> None:
    seed = run_seed()
    chance = random.Random(seed)
    # Each kind once, then whatever comes.
    victims = [*VICTIMS, *(chance.choice(VICTIMS) for _ in range(KILLS - len(VICTIMS)))]
    chance.shuffle(victims)
    with EmbeddedBroker(config=BROKER_CONFIG) as broker:
        topic = new_topic(broker, PARTITIONS)
        grace = chance.choice(["0", "5000"])
        group = new_group(
            broker.bootstrap,
            share_session_grace_ms=grace,
            share_record_lock_duration_ms="2000",
        )
        driver = ChaosDriver(tmp_path, broker.bootstrap, topic, group)
        driver.start()
        sent = 0

        def held(kind: str) -> int:
            return sum(map(len, driver.batches(kind).values()))

        try:
            for victim in victims:
                before = {kind: held(kind) for kind in KINDS}
                fill(broker, topic, dict.fromkeys(range(PARTITIONS), ROUND))
                sent += ROUND
                wait_for(driver, lambda b=before: all(held(k) > b[k] for k in KINDS))  # type: ignore[misc]
                fill(broker, topic, dict.fromkeys(range(PARTITIONS), ROUND))
                sent += ROUND
                time.sleep(chance.uniform(0, MAX_LIFE_SECONDS))
                driver.kill(victim)
            wait_for(driver, lambda: all(held(k) >= sent * PARTITIONS for k in KINDS))
            wait_for(driver, lambda: not any(lags(broker.bootstrap, group).values()))
            assert driver.stop() == 0, driver.log()[-2000:]
        finally:
            driver.end()
    expected = [(number, at) for number in range(PARTITIONS) for at in range(sent)]
    for kind in KINDS:
        batches = driver.batches(kind)
        offsets = sorted(one for some in batches.values() for one in some)
        print(
            f"{kind}: {len(victims)} kills ({', '.join(victims)}), grace {grace} ms, "
            f"{len(expected)} records, {len(offsets)} in {len(batches)} batches, "
            f"{len(offsets) - len(set(offsets))} twice, {len(set(expected) - set(offsets))} lost"
        )
        assert offsets == expected
    assert not (tmp_path / "differs").exists(), (tmp_path / "differs").read_text()


def wait_for(driver: ChaosDriver, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert driver.is_alive, driver.log()[-4000:]
        assert time.monotonic() < deadline, driver.log()[-4000:]
        time.sleep(0.1)
