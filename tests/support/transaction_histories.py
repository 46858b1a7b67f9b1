"""What became of transactions that many clients ran at once, and whether it may have.

A history is what clients did (sessions of transactional ids, their transactions, in the order of
one clock) and what others saw: scans of partitions and positions of groups. Each value is sent
once, to one partition, so that a record tells whose it is. Readers see a partition as a list to
which values are appended. The last committed scan of a partition, begun when every transaction has
ended, decides what is visible. `check` says what contradicts it:

- lost write: its commit was answered with success, and it is not visible.
- aborted read: seen by a reader of committed records, though its commit was never asked for or
  was refused. A commit without an answer may have happened, but as a whole:
- torn: some values of a transaction are visible and others are not.
- duplicate: a value at two offsets. Phantom: one that nobody sent there.
- reordered: values of a session that are not in the order in which it sent them.
- zombie write: a value after one of a later session of the same transactional id.
- fenced commit: asked for when a later session had its identity, and answered with success.
- unstable prefix: a committed reader saw something else up to some offset than the last one does.
- offsets without outputs, outputs without offsets: what the visible transactions of a group have
  consumed is not, piece after piece, what lies below its position; or a position that nobody has
  committed, one before a commit that was answered earlier, or one that went back.

Not anomalies: a transaction that is visible in one partition and not yet in another, and one that
is committed and not yet visible, since markers are written one by one after the decision.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kind(Enum):
    """Of anomalies."""

    LOST_WRITE = "lost write"
    ABORTED_READ = "aborted read"
    TORN = "torn transaction"
    DUPLICATE = "duplicate"
    PHANTOM = "phantom"
    REORDERED = "reordered"
    ZOMBIE_WRITE = "zombie write"
    FENCED_COMMIT = "fenced commit"
    UNSTABLE_PREFIX = "unstable prefix"
    OFFSETS_WITHOUT_OUTPUTS = "offsets without outputs"
    OUTPUTS_WITHOUT_OFFSETS = "outputs without offsets"


class Anomaly(NamedTuple):
    kind: Kind
    evidence: str


class Answer(Enum):
    """To the question of how a transaction is to end."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Session:
    """One identity of a transactional id, from the question for it to the answer."""

    name: str
    transactional_id: str
    asked_at: int
    answered_at: int

    def is_before(self, other: Session) -> bool:
        """Whether the other one has fenced this one."""
        return self.transactional_id == other.transactional_id and self.answered_at < other.asked_at


class Write(NamedTuple):
    partition: int
    value: str


class Consumed(NamedTuple):
    """Input that a transaction says it has worked on, by the offsets it commits."""

    group: str
    partition: int
    first: int
    next: int


@dataclass
class Transaction:
    """`commit` is None until an end is asked for; without an answer it stays unknown."""

    name: str
    session: Session
    writes: list[Write] = field(default_factory=list)
    consumed: list[Consumed] = field(default_factory=list)
    commit: bool | None = None
    asked_at: int = 0
    answer: Answer = Answer.UNKNOWN
    answered_at: int = 0

    @property
    def is_committed(self) -> bool:
        return bool(self.commit) and self.answer is Answer.OK

    @property
    def is_aborted(self) -> bool:
        """Also if nobody has ever asked for a commit."""
        return not self.commit or self.answer is Answer.FAILED

    def __str__(self) -> str:
        asked = {None: "no end", True: "commit", False: "abort"}[self.commit]
        return f"{self.name} of {self.session.name} ({asked}, {self.answer.value})"


class Seen(NamedTuple):
    offset: int
    value: str


class Scan(NamedTuple):
    """All that a reader was given from offset `start` to before `end`."""

    reader: str
    committed: bool
    partition: int
    begun_at: int
    start: int
    end: int
    records: tuple[Seen, ...]


class Position(NamedTuple):
    """The offset of a group in a partition, as of a fetch of stable offsets."""

    group: str
    partition: int
    offset: int
    asked_at: int
    answered_at: int


@dataclass
class History:
    transactions: list[Transaction] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    """All of them, also those that never wrote."""
    scans: list[Scan] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)


class _Sent(NamedTuple):
    transaction: Transaction
    partition: int
    number: int


def check(history: History) -> list[Anomaly]:
    """Everything that must not be, each once."""
    return list(dict.fromkeys(_Judge(history).anomalies()))


class _Judge:
    def __init__(self, history: History) -> None:
        self._history = history
        self._sent = {
            write.value: _Sent(transaction, write.partition, number)
            for number, (transaction, write) in enumerate(
                (transaction, write)
                for transaction in history.transactions
                for write in transaction.writes
            )
        }
        self._last: dict[int, Scan] = {}
        for scan in sorted(history.scans, key=lambda scan: scan.begun_at):
            if scan.committed and scan.start == 0:
                self._last[scan.partition] = scan
        self._visible = {
            record.value for scan in self._last.values() for record in scan.records
        } & self._sent.keys()

    def anomalies(self) -> Iterator[Anomaly]:
        for transaction in self._history.transactions:
            yield from self._outcome(transaction)
            yield from self._fencing(transaction)
        for scan in self._history.scans:
            yield from self._places(scan)
            yield from self._order(scan)
            if scan.committed:
                yield from self._aborted(scan)
                yield from self._stability(scan)
        yield from self._groups()

    # -- transactions -----------------------------------------------------------------------------

    def _outcome(self, transaction: Transaction) -> Iterator[Anomaly]:
        missing = [write for write in transaction.writes if write.value not in self._visible]
        if transaction.is_committed:
            for write in missing:
                yield Anomaly(Kind.LOST_WRITE, f"{write} of {transaction} is not visible")
        if not transaction.is_aborted and 0 < len(missing) < len(transaction.writes):
            yield Anomaly(
                Kind.TORN, f"{transaction} wrote {transaction.writes}, of which {missing} is lost"
            )

    def _fencing(self, transaction: Transaction) -> Iterator[Anomaly]:
        if not transaction.is_committed:
            return
        for other in self._history.sessions:
            if transaction.session.is_before(other) and other.answered_at < transaction.asked_at:
                yield Anomaly(
                    Kind.FENCED_COMMIT,
                    f"{transaction}, asked for at {transaction.asked_at}, but {other.name} had the "
                    f"id since {other.answered_at}",
                )

    # -- scans ------------------------------------------------------------------------------------

    def _places(self, scan: Scan) -> Iterator[Anomaly]:
        places: dict[str, int] = {}
        for offset, value in scan.records:
            sent = self._sent.get(value)
            if sent is None or sent.partition != scan.partition:
                yield Anomaly(Kind.PHANTOM, f"{value} at {_place(scan, offset)}: not sent there")
            if value in places:
                yield Anomaly(
                    Kind.DUPLICATE, f"{value} at {places[value]} and {_place(scan, offset)}"
                )
            places[value] = offset

    def _order(self, scan: Scan) -> Iterator[Anomaly]:
        latest: dict[Session, tuple[int, str]] = {}
        for offset, value in scan.records:
            if (sent := self._sent.get(value)) is None:
                continue
            session = sent.transaction.session
            number, before = latest.get(session, (-1, ""))
            if sent.number < number:
                yield Anomaly(
                    Kind.REORDERED, f"{value} at {_place(scan, offset)}, after {before}, sent later"
                )
            latest[session] = (sent.number, value)
            for other, (_, theirs) in latest.items():
                if session.is_before(other):
                    yield Anomaly(
                        Kind.ZOMBIE_WRITE,
                        f"{value} of {session.name} at {_place(scan, offset)}, after {theirs} of "
                        f"{other.name}",
                    )

    def _aborted(self, scan: Scan) -> Iterator[Anomaly]:
        for offset, value in scan.records:
            sent = self._sent.get(value)
            if sent is not None and sent.transaction.is_aborted:
                yield Anomaly(
                    Kind.ABORTED_READ, f"{value} of {sent.transaction} at {_place(scan, offset)}"
                )

    def _stability(self, scan: Scan) -> Iterator[Anomaly]:
        last = self._last[scan.partition]
        if last.end < scan.end:
            yield Anomaly(
                Kind.UNSTABLE_PREFIX, f"{scan.reader} was at {scan.end}, {last.reader} {last.end}"
            )
        seen, stays = (
            {one for one in each.records if scan.start <= one.offset < scan.end}
            for each in (scan, last)
        )
        for offset, value in sorted(seen ^ stays):
            who, other = (scan, last) if (offset, value) in seen else (last, scan)
            yield Anomaly(
                Kind.UNSTABLE_PREFIX,
                f"{value} at {_place(who, offset)}, but not for {other.reader} up to {other.end}",
            )

    # -- groups -----------------------------------------------------------------------------------

    def _groups(self) -> Iterator[Anomaly]:
        groups: dict[tuple[str, int], list[Position]] = defaultdict(list)
        for position in self._history.positions:
            groups[position.group, position.partition].append(position)
        for (group, partition), positions in groups.items():
            positions.sort(key=lambda position: position.asked_at)
            pieces = [
                (consumed.first, consumed.next, transaction)
                for transaction, consumed in self._consumed(group, partition)
                if self._happened(transaction)
            ]
            pieces.sort(key=lambda piece: piece[:2])
            yield from _pieces(pieces, positions[-1])
            ends = {0} | {end for _, end, _ in pieces}
            for position in positions:
                if position.offset not in ends:
                    yield Anomaly(
                        Kind.OFFSETS_WITHOUT_OUTPUTS, f"{position}: the outputs end at {ends}"
                    )
            yield from self._went_back(positions)
            yield from self._forgotten(positions)

    def _consumed(self, group: str, partition: int) -> Iterator[tuple[Transaction, Consumed]]:
        for transaction in self._history.transactions:
            for consumed in transaction.consumed:
                if (consumed.group, consumed.partition) == (group, partition):
                    yield transaction, consumed

    def _happened(self, transaction: Transaction) -> bool:
        return transaction.is_committed or any(
            write.value in self._visible for write in transaction.writes
        )

    def _went_back(self, positions: list[Position]) -> Iterator[Anomaly]:
        for later in positions:
            for earlier in positions:
                if earlier.answered_at < later.asked_at and later.offset < earlier.offset:
                    yield Anomaly(Kind.OUTPUTS_WITHOUT_OFFSETS, f"{later}, after {earlier}")

    def _forgotten(self, positions: list[Position]) -> Iterator[Anomaly]:
        for position in positions:
            for transaction, consumed in self._consumed(position.group, position.partition):
                if (
                    transaction.is_committed
                    and transaction.answered_at < position.asked_at
                    and position.offset < consumed.next
                ):
                    yield Anomaly(
                        Kind.OUTPUTS_WITHOUT_OFFSETS,
                        f"{position}, after the commit of {transaction} with {consumed}",
                    )


def _pieces(pieces: list[tuple[int, int, Transaction]], last: Position) -> Iterator[Anomaly]:
    """Whether they cover what lies below the last position, without gaps and overlaps."""
    at = 0
    for first, end, transaction in pieces:
        if first > at:
            yield Anomaly(
                Kind.OFFSETS_WITHOUT_OUTPUTS, f"{transaction} went on at {first}, outputs at {at}"
            )
        elif first < at:
            yield Anomaly(
                Kind.OUTPUTS_WITHOUT_OFFSETS,
                f"{transaction} began again at {first}, outputs at {at}",
            )
        at = max(at, end)
    if last.offset > at:
        yield Anomaly(Kind.OFFSETS_WITHOUT_OUTPUTS, f"{last}, but outputs end at {at}")
    elif last.offset < at:
        yield Anomaly(Kind.OUTPUTS_WITHOUT_OFFSETS, f"{last}, but outputs end at {at}")


def _place(scan: Scan, offset: int) -> str:
    kind = "committed" if scan.committed else "uncommitted"
    return f"offset {offset} of partition {scan.partition} ({scan.reader}, {kind})"
