"""`mode=SHARED`: a Kafka share group (KIP-932), through Ottla's own ShareConsumer.

Each message is delivered to one member at a time and acknowledged separately; a nack returns it to
the group. The records of one poll are acknowledged before the next poll, so `prefetch` limits the
number of locked records. There is no position, so there is nothing to seek or store.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla.client.security import PLAINTEXT
from ottla.client.share.consumer import ShareConsumer
from ottla.client.share.types import RecordNotHeld
from ottla.streams.backends.kafka_config import with_port
from ottla.streams.backends.kafka_thread import NS_PER_MS
from ottla.streams.base import Source
from ottla.streams.errors import ConfigError, ConnectError, StreamError, Unsupported
from ottla.streams.types import AutoCommit, Message, Reset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ottla.client.share.types import AckKind, ShareRecord
    from ottla.streams.base import Host, Progress
    from ottla.streams.types import ConsumerOptions, KafkaOptions, MessageId, SeqPos, ShardKey

LOGGER: Final = logging.getLogger(__name__)

NO_POSITION: Final = "a share group has no position: each record is acknowledged by itself"
DECISION_WAIT: Final = 0.02  # seconds between looks whether the last records are decided


class SharedSource(Source):
    """One ShareConsumer with explicit acknowledgements."""

    per_entry = True

    def __init__(
        self,
        nodes: Sequence[str],
        streams: Sequence[str],
        options: ConsumerOptions,
        kafka: KafkaOptions,
    ) -> None:
        if options.reset is Reset.NONE:
            raise ConfigError("a share group always starts somewhere; choose EARLIEST or LATEST")
        assert options.group is not None  # modes.validate has seen to it
        self.redelivers = options.auto_commit is not AutoCommit.DISABLED
        self._group = options.group
        self._undecided: dict[MessageId, ShareRecord] = {}
        self._host: Host | None = None
        self._consumer = ShareConsumer(
            [with_port(node) for node in nodes],
            group=options.group,
            topics=list(streams),
            ack_mode="explicit",
            acquire_mode="record_limit",
            auto_offset_reset=options.reset.value,
            max_poll_records=options.prefetch,
            security=kafka.security or PLAINTEXT,
        )

    @property
    def native(self) -> object:
        return self._consumer

    @property
    def group(self) -> str | None:
        return self._group

    async def open(self, host: Host) -> None:
        self._host = host
        try:
            await self._consumer.__aenter__()
        except ClientError as error:
            raise ConnectError(f"not in share group {self._group!r}: {error}") from error

    async def fetch(self, max_messages: int, timeout: float) -> list[Message]:  # noqa: ASYNC109
        # A poll may return more than the shell has room for; prefetch bounds both alike.
        del max_messages
        if self._undecided:
            assert self._host is not None
            self._host.commit_soon()
            await asyncio.sleep(min(timeout, DECISION_WAIT))
            return []
        try:
            records = await self._consumer.poll(timeout)
        except ClientError as error:
            raise StreamError(f"the share group failed: {error}") from error
        batch = [_message(record) for record in records]
        self._undecided = {
            message.id: record for message, record in zip(batch, records, strict=True)
        }
        return batch

    async def commit(self, progress: Progress) -> None:
        self._decide(progress.acked, "accept")
        self._decide(progress.released, "release")
        try:
            outcome = await self._consumer.commit(return_errors=True)
        except ClientError as error:
            raise StreamError(f"acknowledgements were not taken: {error}") from error
        for place, failed in outcome.items():
            if failed is not None:
                # The lock was lost: the group delivers these records again.
                LOGGER.warning("acknowledgements of %s came too late: %s", place, failed)

    async def release(self, ids: Sequence[MessageId]) -> None:
        self._decide(ids, "release")

    def _decide(self, ids: Sequence[MessageId], kind: AckKind) -> None:
        for one in ids:
            record = self._undecided.pop(one, None)
            if record is not None:
                with suppress(RecordNotHeld):  # the lock was lost, the group delivers it again
                    self._consumer.acknowledge(record, kind)

    async def seek(self, to: datetime, shards: frozenset[ShardKey]) -> None:
        raise Unsupported(NO_POSITION)

    async def rewind(self, to: SeqPos, shards: frozenset[ShardKey]) -> None:
        raise Unsupported(NO_POSITION)

    async def lag(self, positions: Mapping[ShardKey, int]) -> dict[ShardKey, int | None]:
        raise Unsupported(NO_POSITION)

    async def close(self) -> None:
        await self._consumer.close()


def _message(record: ShareRecord) -> Message:
    return Message(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms * NS_PER_MS,
        record.value or b"",
        record.key,
        tuple(record.headers),
        delivery=record.delivery_count,
        is_null=record.value is None,
    )
