"""The interface of backends: `Driver`, `Source` for consumers, `Sink` for producers.

The consumer shell (`consumer.py`) owns states, queue, acknowledgement, redelivery, commit timing
and closing; a source only moves batches. Calls to a source never overlap, with these exceptions:
`interrupt` may come during `fetch`, and `commit`, `release` and `lag` may run beside `fetch`. No
call is ever cancelled because a user cancelled something; only a `fetch` that outlives its timeout
while the consumer closes is cancelled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from ottla.streams.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from ottla.streams.delivery import Batch
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import (
        Backend,
        ConnectOptions,
        ConsumerOptions,
        Message,
        MessageId,
        ProducerOptions,
        SeqPos,
        ShardKey,
    )
    from ottla.streams.url import StreamUrl


class Operation(Enum):
    """Operations that a backend may lack; rows of the table in docs/how-to/streams.md."""

    RESUMABLE = "mode=RESUMABLE"
    LOAD_BALANCED = "mode=LOAD_BALANCED"
    SHARED = "mode=SHARED"
    EARLIEST = "reset=EARLIEST"
    OFFSETS = "offsets= (external offset store)"
    SEEK = "seek(time)"
    REWIND = "rewind(position)"
    LAG = "lag()"
    SHARDS = "several shards per stream"
    MESSAGE_KEYS = "message keys"
    HEADERS = "message headers"
    NULLS = "null payloads and null headers"
    BINARY = "binary payloads"
    TIMESTAMPS = "send(timestamp=)"
    TRANSACTIONS = "transactions"


class Progress(NamedTuple):
    """The progress that a commit saves.

    `positions` are the shards whose position moved. `acked` and `released` are single messages, in
    order, and only filled for sources that say `per_entry`.
    """

    positions: dict[ShardKey, int]
    acked: list[MessageId]
    released: list[MessageId]

    @property
    def empty(self) -> bool:
        """Nothing to do."""
        return not (self.positions or self.acked or self.released)


class Host(Protocol):
    """The consumer as its source sees it."""

    async def revoke(self, shards: Collection[ShardKey], *, lost: bool, within: float) -> None:
        """Give up shards: drop queued messages, wait for work in flight, commit.

        `lost` shards belong to someone else already: nothing is awaited and nothing committed.
        """

    def commit_soon(self) -> None:
        """Commit soon instead of at the next tick, if commits are automatic."""


class Source(ABC):
    """One consumer's way into a store."""

    per_entry: bool = False
    """Acknowledgements go to the store one by one (Redis groups, share groups)."""

    redelivers: bool = False
    """A nack is passed to the store (`Progress.released`), which redelivers the message."""

    @property
    def native(self) -> object:
        """The driver's object."""
        return None

    @property
    def group(self) -> str | None:
        """The group this source is in now; None after it was detached by a seek."""
        return None

    @property
    def no_commit(self) -> str | None:
        """Why commits are refused now; None if they are not."""
        return None

    @abstractmethod
    async def open(self, host: Host) -> None:
        """Connect, resolve start positions, join the group; raises user errors."""

    @abstractmethod
    async def fetch(self, max_messages: int, wait: float) -> list[Message]:
        """The next available messages in order, at most `max_messages`.

        Waits up to `wait` seconds for the first; an empty list then. `StreamEnded` when there
        will be no more. Any other error fails the consumer, so what can be mended is mended here.
        """

    def interrupt(self) -> None:  # noqa: B027 - optional
        """Let a waiting `fetch` return at once. Optional for sources that wait briefly."""

    async def commit(self, progress: Progress) -> None:  # noqa: B027 - optional
        """Save progress; if it raises, the same progress is passed again later."""

    async def seek(self, to: datetime, shards: frozenset[ShardKey]) -> None:  # noqa: B027 - optional
        """Move to the first message strictly later; `shards` is empty for all of them."""

    async def rewind(self, to: SeqPos, shards: frozenset[ShardKey]) -> None:  # noqa: B027 - optional
        """Move to a position. Must raise before anything has moved."""

    async def lag(self, positions: Mapping[ShardKey, int]) -> dict[ShardKey, int | None]:
        """Messages between a position (default: the last fetched) and the end."""
        return {}

    async def ends_now(self) -> dict[ShardKey, int] | None:
        """The sequence past the last message now, of shards that began before it.

        None if the source has an end of its own, which a fetch raises.
        """
        return None

    async def release(self, ids: Sequence[MessageId]) -> None:  # noqa: B027 - optional
        """The consumer closes and these were delivered but not acknowledged."""

    async def give_back(self, messages: Sequence[Message]) -> None:  # noqa: B027 - optional
        """The consumer closes and these were fetched but never delivered."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything; called exactly once, also after a failed `open`."""


class Sink(ABC):
    """One producer's way into a store."""

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def write(self, batch: Batch) -> None:
        """Take messages in, in order.

        Every delivery is resolved or rejected exactly once, during this call or after it; one that
        is still open when `write` raises is rejected with that error by the producer.
        """

    async def flush(self) -> None:  # noqa: B027 - optional
        """Called when all deliveries are settled, to make them durable."""

    async def begin_transaction(self) -> None:
        """Begin: later writes take effect with `commit_transaction`."""
        raise Unsupported("this store has no transactions")

    async def commit_transaction(
        self, source: Source | None, positions: Mapping[ShardKey, int]
    ) -> None:
        """Everything is written; make it and the positions of the source take effect."""
        raise Unsupported("this store has no transactions")

    async def abort_transaction(self) -> None:
        """Discard the writes of the transaction."""
        raise Unsupported("this store has no transactions")

    @abstractmethod
    async def close(self, *, end: bool) -> None:
        """Close; with `end` write an end mark if the store has one."""


class Driver(ABC):
    """A connection to one store. A backend module exports its driver; `streamer.py` names it."""

    backend: ClassVar[Backend]

    unsupported: ClassVar[Mapping[Operation, str]] = {}
    """Unsupported operations with their reasons; the table in the docs is made from it."""

    def __init__(self, url: StreamUrl, options: ConnectOptions):
        self.url = url
        self.options = options

    @abstractmethod
    async def open(self) -> None:
        """Reach the store within `options.timeout`, or `ConnectError`."""

    async def stamped_by_store(self, streams: Sequence[str]) -> frozenset[str]:
        """Streams whose messages get their time from the store."""
        return frozenset()

    @abstractmethod
    def source(
        self, streams: Sequence[str], options: ConsumerOptions, stored: StoredPositions | None
    ) -> Source:
        """A source for options that passed `modes.validate`.

        With `stored`, start positions come from there and commits go there: the source only loads.
        Raises `ConfigError` for what only this backend can know to be wrong.
        """

    @abstractmethod
    def sink(self, options: ProducerOptions) -> Sink:
        """A sink."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection; consumers and producers are closed already."""
