"""Track which delivered messages are done, by auto-commit policy. Pure.

| policy | done |
|---|---|
| IMMEDIATE | when delivered |
| DELAYED | `delay` seconds after delivery |
| NEXT | when the next message is asked for |
| ROLLING, DISABLED | when acknowledged |
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.streams.base import Progress
from ottla.streams.types import AutoCommit, MessageId, ShardKey
from ottla.streams.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.streams.types import Message

BY_USER = (AutoCommit.ROLLING, AutoCommit.DISABLED)


class Tracker:
    """Everything between delivery and commit."""

    def __init__(self, policy: AutoCommit, delay: float, *, per_entry: bool):
        self.policy = policy
        self.by_user = policy in BY_USER
        self.done = 0
        self.dropped_acks = 0
        self._delay = delay
        self._per_entry = per_entry
        self._watermark = Watermark()
        self._current: list[Message] = []
        self._passed: list[Message] = []  # done, and not counted yet: `_fold` does many at once
        self._unripe: deque[tuple[float, list[Message]]] = deque()
        self._in_hand: dict[MessageId, Message] = {}
        self._acked: list[MessageId] = []
        self._released: list[MessageId] = []
        self._committed: dict[ShardKey, int] = {}

    def deliver(self, messages: list[Message], now: float) -> None:
        """These messages go to the user."""
        if self.by_user:
            self._watermark.deliver(messages)
            self._in_hand.update((message.id, message) for message in messages)
        elif self.policy is AutoCommit.NEXT:
            self._current = messages
        elif self.policy is AutoCommit.DELAYED:
            self._unripe.append((now, messages))
        else:
            self._pass(messages)

    def redeliver(self, message: Message) -> None:
        """A message that was nacked goes to the user again."""
        self._in_hand[message.id] = message

    def move_on(self) -> None:
        """With NEXT: the messages delivered last are done."""
        if self._current:
            self._pass(self._current)
            self._current = []

    def ripen(self, now: float, *, moved_past: bool = False) -> None:
        """Deliveries older than the delay are done; `moved_past`: all but the last one, too."""
        while self._unripe and (
            self._unripe[0][0] + self._delay <= now or (moved_past and len(self._unripe) > 1)
        ):
            self._pass(self._unripe.popleft()[1])

    def ack(self, id_: MessageId) -> bool:
        """Mark a message as done; False if it is not held."""
        self._in_hand.pop(id_, None)
        if not self._watermark.ack(id_):
            self.dropped_acks += 1
            return False
        self.done += 1
        if self._per_entry:
            self._acked.append(id_)
        return True

    def take_back(self, id_: MessageId) -> Message | None:
        """Take a message back for redelivery; None if it is not held."""
        return self._in_hand.pop(id_, None)

    def release(self, id_: MessageId) -> None:
        """The store redelivers this message itself; here it is settled."""
        if self._watermark.ack(id_):
            self._released.append(id_)

    def in_flight(self, shards: Collection[ShardKey] | None = None) -> int:
        """Messages in the user's hands that a clean end waits for."""
        held = (*self._in_hand, *(message.id for message in self._current))
        return sum(1 for id_ in held if shards is None or (id_.stream, id_.shard) in shards)

    def unsettled(self) -> list[MessageId]:
        """Delivered and not done, in no particular order."""
        return [*self._in_hand, *(message.id for message in self._current)]

    def positions(self) -> dict[ShardKey, int]:
        """What may be committed now."""
        self._fold()
        return self._watermark.positions()

    def progress(self) -> Progress:
        """The progress for a commit; removed until `committed` or `failed`."""
        moved = {
            shard: position
            for shard, position in self.positions().items()
            if self._committed.get(shard) != position
        }
        taken = Progress(moved, self._acked, self._released)
        self._acked, self._released = [], []
        return taken

    def committed(self, progress: Progress) -> dict[ShardKey, int]:
        """This progress is durable. Returns all positions that are."""
        self._committed.update(progress.positions)
        return dict(self._committed)

    def failed(self, progress: Progress) -> None:
        """Return failed progress to the next commit."""
        self._acked[:0] = progress.acked
        self._released[:0] = progress.released

    def forget(self, shards: Collection[ShardKey] | None = None) -> None:
        """These shards (None: all) are no longer ours, or have moved."""

        def kept(stream: str, shard: int) -> bool:
            return shards is not None and (stream, shard) not in shards

        self._fold()
        self._watermark.forget(shards)
        for known in list(self._committed) if shards is None else shards:
            self._committed.pop(known, None)
        self._current = [m for m in self._current if kept(m.stream, m.shard)]
        self._unripe = deque(
            (when, [m for m in messages if kept(m.stream, m.shard)])
            for when, messages in self._unripe
        )
        self._in_hand = {i: m for i, m in self._in_hand.items() if kept(i.stream, i.shard)}

    def _pass(self, messages: list[Message]) -> None:
        self._passed += messages
        self.done += len(messages)

    def _fold(self) -> None:
        if self._passed:
            passed, self._passed = self._passed, []
            self._watermark.passed(passed)
            if self._per_entry:
                self._acked.extend([message.id for message in passed])
