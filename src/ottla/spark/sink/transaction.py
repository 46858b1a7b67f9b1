"""The transaction of one exactly-once batch: how the driver begins and ends it.

Rules:

- A lease begins a batch. It fences earlier writers with this `sinkId` and aborts their open
  transaction; only then is the marker read, so that it cannot change any more.
- The marker is a committed offset of the group `sinkId`, in partition 0 of each topic the batch
  has written to: the number of the next batch, with the id of the query beside it. It is part of
  the transaction, so the rows are visible if and only if the marker is.
- A marker is valid only for its own query. A recreated checkpoint is a new query, whose batches
  count from 0 again and have nothing to do with the marker.
- A commit is retried until the outcome is certain or the time is over. After a failure the next run
  reads the marker to learn the outcome.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.cluster.cluster import Coordinator
from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import KafkaError, check
from ottla.client.transactions.requests import TransactionCoordinator
from ottla.client.transactions.types import FatalTransactionError, OffsetAndMetadata
from ottla.spark.background import background
from ottla.spark.cluster import make_client
from ottla.spark.errors import BadOption, BatchLost
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from ottla.client.cluster.cluster import Client
    from ottla.client.producer.batches import Identity
    from ottla.spark.client_settings import ClientSettings
    from ottla.spark.sink.options import Transactional

LOG: Final = logging.getLogger(__name__)
ABORT_SECONDS: Final = 10.0
"""Longest time to try to abort; after that the next run or the timeout aborts it."""
MARKER_PARTITION: Final = 0
_STABLE: Final = 7  # the first version with require_stable
_LAST_WITH_NAMES: Final = 9


class Lease(NamedTuple):
    """The producer id of a batch's tasks, and the batches committed before."""

    identity: Identity
    next_batches: dict[str, int]

    def has_batch(self, query: str, batch: int) -> bool:
        """Whether a batch is written and committed."""
        return batch < self.next_batches.get(query, 0)


class Batch(NamedTuple):
    """Spark's identifiers of a micro-batch."""

    query: str
    number: int


def kept_client(settings: ClientSettings) -> AbstractContextManager[Client]:
    """Borrow a client of this process."""
    return background().borrowed(("client", settings), lambda: make_client(settings))


def take_lease(of: Transactional, *, stream: bool) -> Lease:
    """Begin a batch, and abort a transaction that this sink left open."""
    with kept_client(of.client) as client:
        return background().call(_take(client, of, stream=stream))


async def _take(client: Client, of: Transactional, *, stream: bool) -> Lease:
    try:
        identity = await TransactionCoordinator(client, of.sink_id).init(of.timeout_ms)
    except KafkaError as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise BadOption(
            f"transactionTimeoutMs={of.timeout_ms} is more than the broker allows: lower it, or "
            "raise transaction.max.timeout.ms of the broker"
        ) from error
    if not stream:
        return Lease(identity, {})
    return Lease(identity, await client.retry(lambda: _next_batches(client, of.sink_id)))


async def _next_batches(client: Client, group: str) -> dict[str, int]:
    answer: OffsetFetchResponse = await client.send(
        OffsetFetchRequest(group, None, [OffsetFetchRequestGroup(group, topics=None)], True),
        to=Coordinator(group),
        min_version=_STABLE,
        max_version=_LAST_WITH_NAMES,
    )
    what = f"read the last batch of sink {group!r}"
    check(answer.error_code, what)
    found = answer.groups[0] if answer.groups else answer
    check(found.error_code, what)
    batches: dict[str, int] = {}
    for topic in found.topics:
        for one in topic.partitions:
            check(one.error_code, what)
            query = one.metadata or ""
            batches[query] = max(batches.get(query, 0), one.committed_offset)
    return batches


def commit(
    of: Transactional, identity: Identity, batch: Batch | None, topics: Iterable[str]
) -> None:
    """Commit the rows of all tasks together with the marker of their batch."""

    async def end(client: Client) -> None:
        coordinator = TransactionCoordinator(client, of.sink_id)
        if batch is not None:
            marker = OffsetAndMetadata(batch.number + 1, batch.query)
            offsets = {TopicPartition(topic, MARKER_PARTITION): marker for topic in topics}
            await coordinator.commit_offsets(identity, of.sink_id, offsets)
        await coordinator.end(identity, commit=True)

    with kept_client(of.client) as client:
        try:
            background().call(end(client))
        except FatalTransactionError as error:
            raise batch_lost(of, error) from error


def abort(of: Transactional, identity: Identity) -> None:
    """Abort the transaction; never raises.

    Spark asks for this after a failed commit too, which may have succeeded.
    """

    async def end(client: Client) -> None:
        await TransactionCoordinator(client, of.sink_id).end(identity, commit=False)

    try:
        with kept_client(of.client) as client:
            background().call(end(client), ABORT_SECONDS)
    except Exception as error:  # noqa: BLE001  # whatever it is, the failure before it counts
        LOG.warning("the transaction of sink %s is not aborted: %s", of.sink_id, error)


def batch_lost(of: Transactional, error: KafkaError) -> BatchLost:
    """The error for a transaction that was aborted or taken over."""
    return BatchLost(
        f"sink {of.sink_id!r} has lost its transaction ({error.what}: {error.name}): another run "
        "of the query has taken over, or the batch took longer than "
        f"transactionTimeoutMs={of.timeout_ms}; stop the other run, or raise the timeout, and "
        "start again"
    )
