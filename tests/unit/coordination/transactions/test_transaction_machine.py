"""Transactions under any order of producers, zombies, repeats, timeouts and restarts.

The model knows who holds a transactional id, who may have missed an answer, and whether a
transaction is open or ending. Held at every step: the answers are the model's, nobody but the
holder can begin or commit anything, the markers asked for are those of the transactions that end
(each asked for once, and as it was answered), and a replay equals the state. In the end everything
ends: no transaction stays open, no id is kept for ever, no deadline is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.transactions.coordinator import TransactionConfig, TransactionCoordinator
from ottla.coordination.transactions.messages import (
    AddPartitions,
    AddPartitionsResponse,
    EndTransaction,
    EndTransactionResponse,
    TransactionState,
    WriteMarkers,
)
from ottla.coordination.transactions.state import LAST_EPOCH, PREPARED, Identity
from tests.support.transactions import (
    BUSY,
    DONE,
    FENCED,
    ID,
    OTHER_PRODUCER,
    START_MS,
    TIMEOUT_MS,
    WRONG_STATE,
    at_epoch,
)

if TYPE_CHECKING:
    from ottla.coordination.transactions.messages import Partition
    from ottla.wire.error_codes import ErrorCode

EXPIRY_MS = 10 * TIMEOUT_MS
CONFIG = TransactionConfig(id_expiration_ms=EXPIRY_MS)
IDS = [ID, "other"]
RECENT = 4
"""Of how many identities it is tried what they can do."""

ids = st.sampled_from(IDS)
ages = st.sampled_from([0, 0, 0, 0, 1, 2, 3])
"""How many identities ago the asking producer got its own."""
partitions = st.frozensets(
    st.tuples(st.sampled_from("tu"), st.integers(0, 1)), min_size=1, max_size=2
)


class Phase(Enum):
    IDLE = 0
    OPEN = 1
    ENDING = 2


@dataclass
class Known:
    """A transactional id; `fenced` as long as nobody has come since."""

    holder: Identity
    used_ms: int
    fenced: bool = False
    missed: Identity | None = None
    """Who had the id before and is the holder now, if it has heard of it."""
    phase: Phase = Phase.IDLE
    opened_ms: int = 0
    joined: frozenset[Partition] = frozenset()
    outcome: bool | None = None
    ender: Identity | None = None
    """Who ended the last transaction in version 2, if nothing happened since."""
    markers: WriteMarkers | None = None

    def refusal(self, who: Identity) -> ErrorCode | None:
        """What another than the holder is told by anything but InitProducerId."""
        if who.producer_id != self.holder.producer_id:
            return OTHER_PRODUCER
        return FENCED if self.fenced or who != self.holder else None

    def end(self, name: str, marked_as: Identity, commit: bool) -> None:
        self.phase, self.outcome = Phase.ENDING, commit
        self.markers = WriteMarkers(name, *marked_as, commit, self.joined)

    def fence(self, name: str) -> None:
        self.end(name, Identity(self.holder.producer_id, self.holder.epoch + 1), commit=False)
        self.fenced = True
        self.missed = self.ender = None

    def repeated(self, commit: bool) -> ErrorCode:
        if self.outcome is not commit:
            return WRONG_STATE
        return BUSY if self.phase is Phase.ENDING else DONE


class Transactions(RuleBasedStateMachine):
    @initialize(epoch=st.sampled_from([0, LAST_EPOCH - 1, LAST_EPOCH]))
    def start(self, epoch: int) -> None:
        """One id is new, one was found in the log, perhaps with few epochs left."""
        self.driver = at_epoch(epoch, config=CONFIG)
        self.model = {ID: Known(Identity(5, epoch), START_MS)}
        self.given: dict[str, list[Identity]] = {ID: [Identity(5, epoch)], "other": []}
        self.stale: list[WriteMarkers] = []
        self.unasked: set[str] = set()
        self.trial = TransactionCoordinator(CONFIG)
        self.mirror = TransactionCoordinator(CONFIG)
        self.mirrored = 0

    def producer(self, name: str, age: int) -> Identity:
        given = self.given[name]
        return given[-1 - age] if age < len(given) else Identity(1, 0)

    def give(self, name: str, identity: Identity) -> None:
        assert all(identity not in given for given in self.given.values())
        self.given[name].append(identity)

    # Producers

    @rule(name=ids, age=st.one_of(st.none(), ages))
    def init(self, name: str, age: int | None) -> None:
        asked = None if age is None else self.producer(name, age)
        answer = self.driver.init(asked, transactional_id=name)
        identity = Identity(answer.producer_id, answer.producer_epoch)
        known = self.model.get(name)
        if known is None:
            missed = None
        elif asked is not None and asked != known.missed and known.refusal(asked) is not None:
            assert answer.error is FENCED
            return
        elif known.phase is not Phase.IDLE:
            assert answer.error is BUSY
            if known.phase is Phase.OPEN:
                known.fence(name)
            return
        elif asked is not None and asked == known.missed:
            assert identity == known.holder
            self.model[name] = Known(known.holder, self.driver.now, missed=asked)
            return
        else:
            missed = asked
        assert answer.error is DONE
        self.give(name, identity)
        self.model[name] = Known(identity, self.driver.now, missed=missed)

    @rule(name=ids, age=ages, parts=partitions, version_2=st.booleans())
    def add(self, name: str, age: int, parts: frozenset[Partition], version_2: bool) -> None:
        who = self.producer(name, age)
        error = self.driver.add(who, parts, transactional_id=name, version_2=version_2)
        known = self.model.get(name)
        if known is None or (refusal := known.refusal(who)) is not None:
            assert error is (OTHER_PRODUCER if known is None else refusal)
        elif known.phase is Phase.ENDING:
            assert error is BUSY
        else:
            assert error is DONE
            if known.phase is Phase.IDLE:
                known.opened_ms, known.joined = self.driver.now, frozenset()
            known.phase = Phase.OPEN
            known.joined |= parts
            known.missed = known.ender = None

    @rule(name=ids, age=ages, parts=partitions)
    def verify(self, name: str, age: int, parts: frozenset[Partition]) -> None:
        who = self.producer(name, age)
        answer = self.driver.ask(
            AddPartitions(name, *who, parts, verify_only=True), AddPartitionsResponse
        )
        known = self.model.get(name)
        if known is None or (refusal := known.refusal(who)) is not None:
            assert answer.error is (OTHER_PRODUCER if known is None else refusal)
        elif known.phase is Phase.ENDING:
            assert answer.error is BUSY
        else:
            joined = known.joined if known.phase is Phase.OPEN else frozenset()
            assert answer == AddPartitionsResponse(DONE, parts - joined)

    @rule(name=ids, age=ages, commit=st.booleans())
    def end(self, name: str, age: int, commit: bool) -> None:
        who = self.producer(name, age)
        answer = self.driver.end(who, commit, transactional_id=name)
        known = self.model.get(name)
        if known is None or (refusal := known.refusal(who)) is not None:
            assert answer.error is (OTHER_PRODUCER if known is None else refusal)
        elif known.phase is Phase.OPEN:
            assert answer == EndTransactionResponse(DONE, *who)
            known.end(name, who, commit)
        else:
            assert answer.error is known.repeated(commit)

    @rule(name=ids, age=ages, commit=st.booleans())
    def end_version_2(self, name: str, age: int, commit: bool) -> None:
        who = self.producer(name, age)
        answer = self.driver.end(who, commit, transactional_id=name, version_2=True)
        known = self.model.get(name)
        if known is not None and who == known.ender:
            assert answer.error is known.repeated(commit)
            if answer.error is DONE:
                assert answer == EndTransactionResponse(DONE, *known.holder)
        elif known is None or (refusal := known.refusal(who)) is not None:
            assert answer.error is (OTHER_PRODUCER if known is None else refusal)
        elif known.phase is Phase.ENDING:
            assert answer.error is BUSY
        elif known.phase is Phase.IDLE and commit:
            assert answer.error is WRONG_STATE
        else:
            assert answer.error is DONE
            known.holder = Identity(answer.producer_id, answer.producer_epoch)
            self.give(name, known.holder)
            if known.phase is Phase.IDLE:
                known.outcome, known.used_ms = commit, self.driver.now
            else:
                known.end(name, Identity(who.producer_id, who.epoch + 1), commit)
            known.missed = known.ender = who

    # Markers, time, restarts

    @rule(data=st.data())
    def markers_are_written(self, data: st.DataObject) -> None:
        if self.driver.effects:
            markers = data.draw(st.sampled_from(self.driver.effects))
            self.driver.mark(markers)
            self.stale.append(markers)
            known = self.model[markers.transactional_id]
            known.phase, known.used_ms, known.markers = Phase.IDLE, self.driver.now, None

    @rule(data=st.data())
    def an_old_report_comes(self, data: st.DataObject) -> None:
        if self.stale:
            before = len(self.driver.log)
            self.driver.mark(data.draw(st.sampled_from(self.stale)))
            assert len(self.driver.log) == before

    @rule(ms=st.sampled_from([0, 1, TIMEOUT_MS - 1, TIMEOUT_MS, EXPIRY_MS - 1]))
    def advance(self, ms: int) -> None:
        self.driver.advance(ms)
        self.unasked.clear()
        for name, known in list(self.model.items()):
            if known.phase is Phase.OPEN and self.driver.now - known.opened_ms >= TIMEOUT_MS:
                known.fence(name)
            elif known.phase is Phase.IDLE and self.driver.now - known.used_ms >= EXPIRY_MS:
                del self.model[name]

    @rule()
    def restart(self) -> None:
        self.stale += self.driver.restart()
        self.unasked = {name for name, known in self.model.items() if known.phase is Phase.ENDING}
        for known in self.model.values():
            known.missed = None

    # What holds

    @invariant()
    def only_the_holder_can_begin_and_commit(self) -> None:
        for name, known in self.model.items():
            able_to_add: set[Identity] = set()
            able_to_commit: set[Identity] = set()
            for who in self.given[name][-RECENT:]:
                if self._changes(AddPartitions(name, *who, frozenset({("new", 0)}))):
                    able_to_add.add(who)
                for version_2 in (False, True):
                    if self._changes(EndTransaction(name, *who, True, version_2, 1)):
                        able_to_commit.add(who)
            free = not known.fenced and known.phase is not Phase.ENDING
            assert able_to_add == ({known.holder} if free else set())
            assert able_to_commit == ({known.holder} if known.phase is Phase.OPEN else set())

    def _changes(self, request: AddPartitions | EndTransaction) -> bool:
        self.trial.transactions = dict(self.driver.machine.transactions)
        return bool(self.trial.decide(request, 0, self.driver.time).records)

    @invariant()
    def markers_are_asked_for_once(self) -> None:
        wanted = [
            known.markers
            for name, known in self.model.items()
            if known.markers is not None and name not in self.unasked
        ]
        asked = sorted(self.driver.effects, key=lambda markers: markers.transactional_id)
        assert asked == sorted(wanted, key=lambda markers: markers.transactional_id)

    @invariant()
    def replay_equals(self) -> None:
        assert self.driver.machine.transactions.keys() == self.model.keys()
        for key, value in self.driver.log[self.mirrored :]:
            self.mirror.replay(key, value)
        self.mirrored = len(self.driver.log)
        assert self.mirror.transactions == self.driver.machine.transactions

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.advance(TIMEOUT_MS)
        for markers in list(self.driver.effects):
            self.driver.mark(markers)
        machine = self.driver.machine
        states = {txn.state for txn in machine.transactions.values()}
        assert not states & {TransactionState.ONGOING, *PREPARED}
        self.driver.advance(EXPIRY_MS)
        assert machine.transactions == {}
        assert machine.next_deadline() is None


TestTransactions = Transactions.TestCase
