"""Errors of a log, each with its Kafka error code.

The broker answers `error.code` as it is; no table of translations is needed anywhere else.
"""

from __future__ import annotations

from typing import ClassVar

from ottla.wire.error_codes import ErrorCode


class LogError(Exception):
    """A log refused a request. `code` is the Kafka error code of the answer."""

    code: ClassVar[ErrorCode]


class OffsetOutOfRange(LogError):
    """The offset lies below the log start or past the end (or the high watermark)."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(LogError):
    """Length, CRC or compressed block of a batch is wrong."""

    code = ErrorCode.CORRUPT_MESSAGE


class RecordTooLarge(LogError):
    """The batch is over max.message.bytes."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordListTooLarge(LogError):
    """The batch fits in no segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTimestamp(LogError):
    """A timestamp is outside the topic's limits, or the client claimed log-append time."""

    code = ErrorCode.INVALID_TIMESTAMP


class PolicyViolation(LogError):
    """The topic's cleanup policy does not allow the operation."""

    code = ErrorCode.POLICY_VIOLATION


class OffsetMovedToTieredStorage(LogError):
    """The log has the offset, but not on local disk any more."""

    code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


class NotAtHand(LogError):
    """To read it would wait for the disk; the caller asked not to wait."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class MayNotBeAtHand(NotAtHand):
    """The system does not say whether it would."""


class OutOfOrderSequence(LogError):
    """The batch does not follow the producer's last one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(LogError):
    """A newer instance of this producer has been seen."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnState(LogError):
    """A batch outside the transaction while one is open."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(LogError):
    """The marker comes from an older coordinator than the last one."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class StorageFailure(LogError):
    """The disk failed under this log; it stays offline until the data directory is reopened."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogClosed(LogError):
    """The log is closed: its topic was deleted, another node leads it, or the broker stops."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class NotArrived(LogError):
    """This node leads the partition, and the node that has its log has not released it yet."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class UnsupportedCompression(LogError):
    """The codec does not exist, or not for this request version."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class InvalidRecordError(LogError):
    """The batch is not one a client may send. `record_errors` names the records, if any."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message, record_errors)
        self.message = message
        self.record_errors = record_errors

    def __str__(self) -> str:
        return self.message
