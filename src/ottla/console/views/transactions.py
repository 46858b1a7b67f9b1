"""Transactions that are open, one of them, and those that hang."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.console.attention import OPEN_TRANSACTIONS
from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.admin.types import HangingTransaction, TransactionDescription
    from ottla.client.cluster.view import TopicPartition
    from ottla.console.attention import Attention
    from ottla.console.look import Look

Held: TypeAlias = "Mapping[TopicPartition, int]"
"""Records between the last stable offset and the end, by partition."""
NOTHING: Final[Held] = {}


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """The last transaction of a transactional id; `open_s` is None unless it is open."""

    name: str
    state: str
    open_s: float | None
    timeout_s: float
    producer_id: int
    producer_epoch: int
    coordinator: int
    partitions: tuple[str, ...]
    held_back: int | None = None
    """Records that readers of committed ones wait for in its partitions; None: not known."""


@dataclass(frozen=True, slots=True)
class HangingRow:
    """A transaction that is open in a partition although no coordinator will end it."""

    topic: str
    partition: int
    start: int
    producer_id: int
    producer_epoch: int
    last_s: float
    """Seconds since it wrote last."""


@dataclass(frozen=True, slots=True)
class TransactionsPage:
    """All transactional ids, the longest open first."""

    frame: Frame
    open: int
    longest_s: float | None
    transactions: Known[Table[TransactionRow]]
    hanging: Known[tuple[HangingRow, ...]] | None = None
    """None: nobody asked to look for them."""


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A partition of a transaction."""

    topic: str
    partition: int
    held_back: int | None


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """One transactional id; `row` is None if the cluster does not know it."""

    frame: Frame
    name: str
    row: Known[TransactionRow | None]
    partitions: tuple[HeldRow, ...]


def is_open(one: TransactionDescription) -> bool:
    """Whether it holds something back."""
    return one.state in OPEN_TRANSACTIONS and one.start_time_ms is not None


def _row(look: Look, one: TransactionDescription, held: Held) -> TransactionRow:
    known = [held[key] for key in one.partitions if key in held] if is_open(one) else []
    began = one.start_time_ms or 0
    return TransactionRow(
        name=one.transactional_id,
        state=one.state,
        open_s=max(0.0, (look.now.wall_ms - began) / 1000) if is_open(one) else None,
        timeout_s=one.timeout_ms / 1000,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        coordinator=one.coordinator_id,
        partitions=tuple(map(str, one.partitions)),
        held_back=sum(known) if known else None,
    )


def one_page(look: Look, attention: Attention, name: str, held: Held = NOTHING) -> TransactionPage:
    """The page of a transactional id."""
    around = frame(look, attention, [look.data.transactions.at_ms])
    listed = look.data.transactions.value
    if isinstance(listed, Missing):
        return TransactionPage(around, name, listed, ())
    found = next((one for one in listed if one.transactional_id == name), None)
    if found is None:
        return TransactionPage(around, name, None, ())
    partitions = tuple(
        HeldRow(key.topic, key.partition, held.get(key)) for key in sorted(found.partitions)
    )
    return TransactionPage(around, name, _row(look, found, held), partitions)


def page(
    look: Look,
    attention: Attention,
    query: Query = ALL,
    held: Held = NOTHING,
    hanging: Sequence[HangingTransaction] | Missing | None = None,
) -> TransactionsPage:
    """The transactions that the query asks for, and what each holds back."""
    around = frame(look, attention, [look.data.transactions.at_ms])
    listed = look.data.transactions.value
    stuck = hanging if hanging is None or isinstance(hanging, Missing) else _hanging(look, hanging)
    if isinstance(listed, Missing):
        return TransactionsPage(around, 0, None, listed, stuck)
    rows = [_row(look, one, held) for one in listed]
    lasting = [one.open_s for one in rows if one.open_s is not None]
    wanted = set(chosen((one.name for one in rows), query.contains))
    return TransactionsPage(
        around,
        len(lasting),
        max(lasting, default=None),
        table([one for one in rows if one.name in wanted], query, "-open_s", lambda one: one.name),
        stuck,
    )


def _hanging(look: Look, found: Sequence[HangingTransaction]) -> tuple[HangingRow, ...]:
    return tuple(
        HangingRow(
            one.topic,
            one.partition,
            one.producer.transaction_start_offset or 0,
            one.producer.producer_id,
            one.producer.producer_epoch,
            max(0.0, (look.now.wall_ms - one.producer.last_timestamp_ms) / 1000),
        )
        for one in found
    )
