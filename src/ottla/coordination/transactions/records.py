"""The records of `__transaction_state`, byte for byte as Kafka writes them.

A key is int16 type 0 and the transactional id, never flexible. A value is int16 version, then the
fields; version 1, which is written, is flexible and has tags, version 0 is read too. The partitions
are null while there is no transaction. A null value deletes the id. A record of another type
decodes to None and is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Final, NamedTuple

from ottla.coordination.codec import MalformedRecord, Reader, UnsupportedRecordVersion, Writer
from ottla.coordination.transactions.messages import NO_PRODUCER_ID, Partition, TransactionState

KEY_TYPE: Final = 0
VERSION: Final = 1
OLDEST_VERSION: Final = 0

NO_START: Final = -1
"""The start of a transaction that has not begun."""

PREVIOUS_PRODUCER_ID_TAG, NEXT_PRODUCER_ID_TAG, CLIENT_VERSION_TAG = range(3)

IN_LOG: Final = frozenset(TransactionState) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}
"""The two other states have numbers, but are never written."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The durable state of a transactional id."""

    where: ClassVar[str] = "value of __transaction_state"
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[Partition]
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id of the previous record."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the markers are written, if the epochs of this one are used up."""
    client_version: int = 0
    """2 if the last request for the transaction used the second version, else 0."""

    def encode(self) -> bytes:
        out = Writer(flexible=True).int16(VERSION)
        out.int64(self.producer_id).int16(self.producer_epoch).int32(self.timeout_ms)
        out.int8(self.state)
        topics = groupby(sorted(self.partitions), key=itemgetter(0))
        empty = self.state is TransactionState.EMPTY
        out.array(
            None if empty else [(name, list(indexes)) for name, indexes in topics],
            lambda topic: (
                out.string(topic[0]).array(topic[1], lambda named: out.int32(named[1])).tags()
            ),
        )
        out.int64(self.last_update_ms).int64(self.start_ms)
        tagged = {}
        if self.previous_producer_id != NO_PRODUCER_ID:
            tagged[PREVIOUS_PRODUCER_ID_TAG] = Writer().int64(self.previous_producer_id)
        if self.next_producer_id != NO_PRODUCER_ID:
            tagged[NEXT_PRODUCER_ID_TAG] = Writer().int64(self.next_producer_id)
        if self.client_version:
            tagged[CLIENT_VERSION_TAG] = Writer().int16(self.client_version)
        return out.tags(tagged).done()

    @classmethod
    def decode(cls, data: bytes) -> Transaction:
        reader = Reader(data, cls.where)
        version = reader.int16()
        if not OLDEST_VERSION <= version <= VERSION:
            raise UnsupportedRecordVersion(f"{OLDEST_VERSION} to {VERSION}", version, cls.where)
        reader.flexible = version >= 1

        def topic() -> list[Partition]:
            name = reader.string()
            indexes = reader.array(reader.int32)
            if reader.flexible:
                reader.tags()
            return [(name, index) for index in indexes]

        producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
        state = reader.int8()
        if state not in IN_LOG:
            raise MalformedRecord("a state that is written", state, cls.where)
        topics = reader.nullable_array(topic) or ()
        last_update_ms, start_ms = reader.int64(), reader.int64()
        tagged = reader.tags() if reader.flexible else {}
        reader.end()
        previous = tagged.get(PREVIOUS_PRODUCER_ID_TAG)
        following = tagged.get(NEXT_PRODUCER_ID_TAG)
        client = tagged.get(CLIENT_VERSION_TAG)
        return cls(
            producer_id,
            epoch,
            timeout_ms,
            TransactionState(state),
            frozenset(partition for named in topics for partition in named),
            last_update_ms,
            start_ms,
            NO_PRODUCER_ID if previous is None else previous.int64(),
            NO_PRODUCER_ID if following is None else following.int64(),
            0 if client is None else client.int16(),
        )


class TransactionRecord(NamedTuple):
    """The stored state of a transactional id; `value` None deletes it."""

    transactional_id: str
    value: Transaction | None

    def encode(self) -> tuple[bytes, bytes | None]:
        key = Writer().int16(KEY_TYPE).string(self.transactional_id).done()
        return key, None if self.value is None else self.value.encode()


def decode(key_data: bytes, value_data: bytes | None) -> TransactionRecord | None:
    """The record; None for an unknown type of key."""
    reader = Reader(key_data, "key of __transaction_state")
    if reader.int16() != KEY_TYPE:
        return None
    transactional_id = reader.string()
    reader.end()
    value = None if value_data is None else Transaction.decode(value_data)
    return TransactionRecord(transactional_id, value)
