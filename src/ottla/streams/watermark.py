"""The committable position of each shard, from deliveries and acknowledgements. Pure.

A position never passes a message that was delivered and is not acknowledged. It is never inferred
from numbers: sequences have holes (compaction, transactions, Redis ids), and a hole is not a
message in flight. So each shard keeps its delivered messages in order of delivery; acknowledged
heads are dropped, and the position is the head, or one past the last delivered when nothing is
pending.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.streams.types import ShardKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ottla.streams.types import Message, MessageId


class _Shard:
    __slots__ = ("next", "order", "pending")

    def __init__(self) -> None:
        self.order: deque[int] = deque()
        self.pending: set[int] = set()
        self.next = 0


class Watermark:
    """Delivered, acknowledged and committable, per shard."""

    __slots__ = ("_shards",)

    def __init__(self) -> None:
        self._shards: dict[tuple[str, int], _Shard] = {}

    def deliver(self, messages: Iterable[Message]) -> None:
        """These messages are in someone's hands now."""
        for message in messages:
            seq = message[2]
            shard = self._shard(message[:2])
            shard.order.append(seq)
            shard.pending.add(seq)
            shard.next = seq + 1

    def ack(self, id_: MessageId) -> bool:
        """Done with one message; False if it is not pending (a repeat, unknown, or revoked)."""
        seq = id_[2]
        shard = self._shards.get(id_[:2])
        if shard is None or seq not in shard.pending:
            return False
        shard.pending.remove(seq)
        order, pending = shard.order, shard.pending
        while order and order[0] not in pending:
            order.popleft()
        return True

    def passed(self, messages: Iterable[Message]) -> None:
        """Done with messages that were never tracked one by one, in order of delivery."""
        last = {message[:2]: message[2] for message in messages}
        for key, seq in last.items():
            self._shard(key).next = seq + 1

    def pending(self, shards: Collection[ShardKey] | None = None) -> int:
        """How many messages are delivered and not acknowledged."""
        return sum(
            len(shard.pending)
            for key, shard in self._shards.items()
            if shards is None or key in shards
        )

    def positions(self) -> dict[ShardKey, int]:
        """What may be committed now."""
        return {
            ShardKey(*key): shard.order[0] if shard.order else shard.next
            for key, shard in self._shards.items()
        }

    def forget(self, shards: Collection[ShardKey] | None = None) -> None:
        """Drop these shards, or all of them."""
        for key in list(self._shards) if shards is None else shards:
            self._shards.pop(key, None)

    def _shard(self, key: tuple[str, int]) -> _Shard:
        shard = self._shards.get(key)
        if shard is None:
            shard = self._shards[key] = _Shard()
        return shard
