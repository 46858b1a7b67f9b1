"""What a log may refuse, one exception type each, with the Kafka error code a client is told.

The broker answers `error.code` as it is; no table of translations is needed anywhere else.
"""

from __future__ import annotations

from typing import ClassVar


class LogError(Exception):
    """A log refused a request. `code` is the Kafka error code of the answer."""

    code: ClassVar[int]


class OffsetOutOfRange(LogError):
    """The offset lies below the log start or past the end (or the high watermark)."""

    code = 1


class CorruptMessage(LogError):
    """Length, CRC or compressed block of a batch is wrong."""

    code = 2


class RecordTooLarge(LogError):
    """The batch is over max.message.bytes."""

    code = 10


class RecordListTooLarge(LogError):
    """The batch fits in no segment."""

    code = 18


class InvalidTimestamp(LogError):
    """A timestamp is outside the topic's limits, or the client claimed log-append time."""

    code = 32


class PolicyViolation(LogError):
    """The topic's cleanup policy does not allow the operation."""

    code = 44


class OutOfOrderSequence(LogError):
    """The batch does not follow the producer's last one."""

    code = 45


class InvalidProducerEpoch(LogError):
    """A newer instance of this producer has been seen."""

    code = 47


class InvalidTxnState(LogError):
    """A batch outside the transaction while one is open."""

    code = 48


class TransactionCoordinatorFenced(LogError):
    """The marker comes from an older coordinator than the last one."""

    code = 52


class StorageFailure(LogError):
    """The disk failed under this log; it stays offline until the data directory is reopened."""

    code = 56


class UnsupportedCompression(LogError):
    """The codec does not exist, or not for this request version."""

    code = 76


class InvalidRecordError(LogError):
    """The batch is not one a client may send. `record_errors` names the records, if any."""

    code = 87

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message, record_errors)
        self.message = message
        self.record_errors = record_errors

    def __str__(self) -> str:
        return self.message
