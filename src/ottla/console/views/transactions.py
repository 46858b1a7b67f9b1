"""Transactions that are open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.console.attention import OPEN_TRANSACTIONS
from ottla.console.missing import Known, Missing
from ottla.console.views.frame import Frame, frame
from ottla.console.views.table import ALL, Query, Table, chosen, table

if TYPE_CHECKING:
    from ottla.console.attention import Attention
    from ottla.console.look import Look


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


@dataclass(frozen=True, slots=True)
class TransactionsPage:
    """All transactional ids, the longest open first."""

    frame: Frame
    open: int
    longest_s: float | None
    transactions: Known[Table[TransactionRow]]


def page(look: Look, attention: Attention, query: Query = ALL) -> TransactionsPage:
    """The transactions that the query asks for."""
    around = frame(look, attention, [look.data.transactions.at_ms])
    listed = look.data.transactions.value
    if isinstance(listed, Missing):
        return TransactionsPage(around, 0, None, listed)
    rows = []
    for one in listed:
        is_open = one.state in OPEN_TRANSACTIONS and one.start_time_ms is not None
        rows.append(
            TransactionRow(
                name=one.transactional_id,
                state=one.state,
                open_s=max(0.0, (look.now.wall_ms - (one.start_time_ms or 0)) / 1000)
                if is_open
                else None,
                timeout_s=one.timeout_ms / 1000,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                coordinator=one.coordinator_id,
                partitions=tuple(map(str, one.partitions)),
            )
        )
    lasting = [one.open_s for one in rows if one.open_s is not None]
    wanted = set(chosen((one.name for one in rows), query.contains))
    return TransactionsPage(
        around,
        len(lasting),
        max(lasting, default=None),
        table([one for one in rows if one.name in wanted], query, "-open_s", lambda one: one.name),
    )
