"""The transactions of a producer on sockets: carries out the requests of `TransactionState`.

- Requests to coordinators run in tasks of their own, and the end of a transaction is not requested
  before they are done: nothing of a transaction reaches a broker after its end.
- Cancelling inside the block, or while the records of a commit are in flight, aborts. Once the end
  is requested it is completed even if the caller is cancelled; the caller then does not get the
  result, and the next transaction begins when it is done.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.errors import ClientError, KafkaError
from ottla.client.transactions.requests import TransactionCoordinator
from ottla.client.transactions.state import Phase, TransactionState
from ottla.client.transactions.types import (
    AbortableTransactionError,
    FatalTransactionError,
    TransactionError,
    transaction_error,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.view import TopicPartition
    from ottla.client.producer.batches import Identity
    from ottla.client.producer.sender import Sender
    from ottla.client.transactions.types import ConsumerGroupMetadata, OffsetAndMetadata

T = TypeVar("T")


class Transactions:
    """All transactions of one producer; the sender's `Gate`."""

    def __init__(
        self,
        client: Client,
        sender: Sender,
        transactional_id: str,
        timeout_ms: int,
        guest: Identity | None,
    ) -> None:
        self._client = client
        self._coordinator = TransactionCoordinator(client, transactional_id)
        self._sender = sender
        self._timeout_ms = timeout_ms
        self._state = TransactionState(guest)
        self._beginning = asyncio.Lock()
        self._ending: asyncio.Task[ClientError | None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        if guest is not None:
            sender.records.restart(guest)
        sender.gate = self

    # What the sender asks, see `Gate`.

    def ticket(self) -> int:
        return self._state.ticket()

    def check(self, ticket: int) -> None:
        self._state.check(ticket)

    def admit(self, ready: Iterable[TopicPartition]) -> list[TopicPartition]:
        admitted = self._state.admit(ready)
        self._add()
        return admitted

    def failed(self, error: ClientError) -> ClientError:
        told = _of_a_batch(error)
        self._doom(told)
        return told

    def _add(self) -> None:
        if partitions := self._state.to_add():
            self._start(self._add_partitions(partitions))

    async def _add_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        try:
            await self._coordinator.add_partitions(self._identity, sorted(partitions))
        except ClientError as error:
            self._doom(error)
        else:
            self._state.added()
            # Partitions that came meanwhile are added in the next turn, with all that are ready
            # then.
            self._sender.changed()

    def _doom(self, error: ClientError) -> None:
        if self._state.failure is None:
            # Callers that wait for records that will not be sent get the error after this turn.
            asyncio.get_running_loop().call_soon(self._drop, self._state.number)
        self._state.failed(error)

    def _drop(self, number: int) -> None:
        if self._state.number == number:
            self._sender.drop(self._state.loss())

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def _identity(self) -> Identity:
        assert self._state.identity is not None
        return self._state.identity

    # What a transaction asks.

    async def begin(self) -> int:
        """Open a transaction, and get or renew the identity for it where that is needed."""
        async with self._beginning:
            await self._initialise()
            self._state.begin()
            return self._state.ticket()

    async def initialise(self) -> None:
        """Get the identity now, and so fence other producers; a guest has it."""
        async with self._beginning:
            if self._state.identity is None:
                await self._initialise()

    async def _initialise(self) -> None:
        self._sender.refuse()
        if self._ending is not None:
            await asyncio.shield(self._ending)
        self._state.refuse_to_begin()
        if self._state.wants_identity:
            identity = await self._coordinator.init(self._timeout_ms, self._state.identity)
            self._state.initialised(identity)
            self._sender.records.restart(identity)
        self._sender.refuse()

    async def send_offsets(
        self,
        ticket: int,
        group: str | ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    ) -> None:
        """Have offsets committed with the transaction."""
        self._client.check_loop()
        self._state.touch(ticket)

        async def work() -> None:
            try:
                await self._coordinator.commit_offsets(self._identity, group, offsets)
            except ClientError as error:
                # Even if the caller stopped waiting: without its offsets nothing is committed.
                self._doom(error)
                raise

        await asyncio.shield(self._start(work()))

    async def commit(self, ticket: int) -> None:
        """Write everything; if that cannot be, nothing, and raise why."""
        self._client.check_loop()
        self._state.commit(ticket)
        try:
            await self._sender.flush()
        except asyncio.CancelledError:
            self._give_up()
            await self._end(self._aborted())
            raise
        if (failure := await self._end(self._committed())) is not None:
            raise failure

    async def abort(self, ticket: int) -> None:
        """Drop batches that were not sent, wait for those in flight, then forget all of them."""
        self._client.check_loop()
        if self._state.is_open(ticket):
            self._give_up()
            await self._end(self._aborted())

    async def close(self) -> None:
        """Abort an open transaction; complete one that is ending."""
        if not self._state.is_guest:
            await self.abort(self._state.number)
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def stop(self) -> None:
        """End all tasks, done or not."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end(self, work: Coroutine[Any, Any, ClientError | None]) -> ClientError | None:
        """Why nothing is committed, if it was to be. To be cancelled here changes nothing."""
        self._ending = self._start(work)
        return await asyncio.shield(self._ending)

    async def _committed(self) -> ClientError | None:
        await self._until_answered()
        if self._state.failure is None:
            try:
                await self._end_at_coordinator(commit=True)
            except ClientError as error:
                self._state.failed(error)
            else:
                self._state.ended()
                return None
        why = self._state.loss()
        self._give_up()
        await self._aborted()
        return why

    def _give_up(self) -> None:
        self._state.abort(loses_records=any(True for _ in self._sender.records))
        self._sender.drop(self._state.loss())

    async def _aborted(self) -> None:
        await self._sender.drain()
        await self._until_answered()
        try:
            await self._end_at_coordinator(commit=False)
        except ClientError as error:
            self._state.failed(error)
        self._state.ended()

    async def _until_answered(self) -> None:
        """Wait until nothing else is asked of coordinators."""
        others = self._tasks - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _end_at_coordinator(self, *, commit: bool) -> None:
        if self._state.is_known and self._state.phase is not Phase.OVER:
            await self._coordinator.end(self._identity, commit=commit)


def _of_a_batch(error: ClientError) -> ClientError:
    """The effect of a failed batch on its transaction."""
    if not isinstance(error, KafkaError) or isinstance(error, TransactionError):
        return error
    if error.code == ErrorCode.INVALID_TXN_STATE:
        # From a partition that has ended the transaction or does not have it; the coordinator may
        # still have it open.
        return AbortableTransactionError(*error.args)
    found = transaction_error(error.code, error.what, error.message)
    return found if isinstance(found, FatalTransactionError) else error
