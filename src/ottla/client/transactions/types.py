"""What transactions take, and how they fail.

Three kinds of failure, by what is left to do:

- `FatalTransactionError`, with `ProducerFenced` below it: this producer cannot be used any more.
  Its open transaction is aborted, or soon will be; make a new producer.
- `AbortableTransactionError`, and every other `ClientError` of a send: the transaction can only be
  aborted. The producer can still be used: repeat the work in another transaction.
- `TransactionUnresolved`: the end of a transaction was requested and there was no response. It is
  committed or aborted, as requested or by its timeout; request it again to learn more.

Temporary conditions (a coordinator that moves, the last transaction still being ended) are retried
and not raised.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.client.cluster.retry import is_passing
from ottla.client.errors import BadArgument, ClientError, KafkaError, RequestTimedOut, kafka_error
from ottla.wire.error_codes import ErrorCode


class ConsumerGroupMetadata(NamedTuple):
    """A member of a consumer group, whose offsets are refused once it is no longer a member.

    `generation_id` is the member epoch in groups of the protocol "consumer".
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndMetadata(NamedTuple):
    """An offset to continue from, and the metadata that the committer stored with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


_FENCED_HINT: Final = (
    "another producer uses the transactional id, or the transaction outlived "
    "transaction_timeout_ms; make a new producer, and give each process an id of its own"
)
_STALE_MEMBER_HINT: Final = (
    "the consumer has left its group or its session timed out; repeat the work from the offsets "
    "that the group has committed"
)
_HINTS: Final[dict[int, str]] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED_HINT,
    ErrorCode.PRODUCER_FENCED: _FENCED_HINT,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "the id was idle for longer than transactional.id.expiration.ms; make a new producer"
    ),
    ErrorCode.INVALID_TXN_STATE: (
        "the transaction has ended already, most likely by its timeout; raise "
        "transaction_timeout_ms or do less in one transaction"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "lower transaction_timeout_ms, or raise transaction.max.timeout.ms of the broker"
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ask for an ACL on the transactional id",
    ErrorCode.TRANSACTION_ABORTABLE: "abort the transaction, and do its work again",
    ErrorCode.UNKNOWN_MEMBER_ID: _STALE_MEMBER_HINT,
    ErrorCode.ILLEGAL_GENERATION: _STALE_MEMBER_HINT,
    ErrorCode.STALE_MEMBER_EPOCH: _STALE_MEMBER_HINT,
    ErrorCode.FENCED_INSTANCE_ID: _STALE_MEMBER_HINT,
}


class TransactionError(KafkaError):
    """The coordinator, or a broker that it vouches for, has refused something."""

    @property
    def hint(self) -> str | None:
        return _HINTS.get(self.code, super().hint)


class AbortableTransactionError(TransactionError):
    """The transaction can only be aborted; the producer lives on."""


class FatalTransactionError(TransactionError):
    """The producer cannot go on; make a new one."""


class ProducerFenced(FatalTransactionError):
    """Another producer has taken over the transactional id, or the transaction took too long."""


class TransactionAborted(ClientError):
    """Nothing of the transaction is written, since part of it could not be; do its work again."""


class TransactionUnresolved(RequestTimedOut):
    """Whether the transaction is committed is not known; ask to end it once more."""


class WrongTransactionState(BadArgument):
    """A call at the wrong time: outside of a transaction, or inside of one."""


_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_FATAL: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def transaction_error(code: int, what: str, message: str | None = None) -> KafkaError:
    """The exception for an error code that answers a request of a transaction."""
    if code in _FENCED:
        return ProducerFenced(code, what, message)
    if code in _FATAL:
        return FatalTransactionError(code, what, message)
    passing = kafka_error(code, what, message)
    return passing if is_passing(passing) else AbortableTransactionError(code, what, message)


def check_transaction(code: int, what: str) -> None:
    """Raise the exception for an error code; 0 is success."""
    if code:
        raise transaction_error(code, what)
