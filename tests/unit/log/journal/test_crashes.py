"""Whatever of journal and logs survives a loss of power: nothing acknowledged is lost.

Steps in any order, each of which may be the last before the power goes, at any of its system calls;
then the next start, in which it may go again. A walk is given by its seed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.support.faults_broker import soak
from tests.support.journal_crew import Crew
from tests.support.log_faults import Survival
from tests.support.sizes import some

if TYPE_CHECKING:
    from collections.abc import Callable

WALKS = 10_000 if soak() else 200
STEPS = 120
SURVIVALS = tuple(Survival)
# What happens, and how often. Losses of power are rare enough that files are used again and again.
WEIGHTS = {
    "append": 60,
    "append_large": 8,
    "cut": 50,
    "write": 50,
    "write_fails": 1,
    "sync_directly": 20,
    "obey": 25,
    "rounds": 6,
    "rest": 2,
    "note": 5,
    "delete_records": 4,
    "expire": 6,
    "lose_power_soon": 4,
    "lose_power": 3,
    "stop": 1,
}


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.crew = Crew(files=self.random.choice([2, 3]))
        # A journal that has its first file, which a broker has after its first round.
        self.crew.obey()

    def step(self, kind: str) -> None:
        crew, random = self.crew, self.random
        partition = random.randrange(crew.partitions)
        steps: dict[str, Callable[[], None]] = {
            "append": lambda: crew.append(
                partition, random.choices([1, 200, 1500], k=random.randint(1, 2))
            ),
            "append_large": lambda: crew.append(partition, [3100]),
            "cut": crew.cut,
            "write": crew.write_slot,
            "write_fails": lambda: crew.write_slot(fails=True),
            "sync_directly": crew.sync_directly,
            "obey": crew.obey,
            "rounds": lambda: self._rounds(partition),
            "rest": crew.rest,
            "note": crew.note_recovery_points,
            "delete_records": lambda: crew.delete_records(
                partition, random.choice([0.3, 0.9, 1.0])
            ),
            "expire": lambda: crew.expire(partition),
            "lose_power_soon": lambda: crew.lose_power_at(
                random.randrange(12), random.choice(SURVIVALS), torn=random.random() < 0.5
            ),
            "lose_power": lambda: crew.lose_power(random.choice(SURVIVALS)),
            "stop": crew.stop,
        }
        steps[kind]()

    def _rounds(self, partition: int) -> None:
        for _ in range(self.random.randint(1, 8)):
            self.crew.append(partition, [self.random.choice([1, 800])])
            self.crew.cut()
            self.crew.write_slot()


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(10))
def test_nothing_acknowledged_is_lost(block: int) -> None:
    kinds, weights = [*WEIGHTS], [*WEIGHTS.values()]
    replays = 0
    for seed in some(range(block, WALKS, 10), block):
        walk = Walk(seed)
        taken = []
        for kind in walk.random.choices(kinds, weights, k=STEPS):
            taken.append(kind)
            try:
                walk.step(kind)
                walk.crew.check()
            except BaseException as error:
                error.add_note(f"seed {seed}, after {taken}")
                raise
        walk.crew.lose_power(walk.random.choice(SURVIVALS))
        replays += walk.crew.replays
    assert replays  # else the journal was never needed
