"""Errors in received bytes, one exception type each.

Every error has three facts: what was expected, what was found, and where. They
are positional, so that an error survives pickling on its way back from a worker process.
"""


class Mismatch(ValueError):
    """Base class: has what was expected, what was found, and where."""

    summary = "mismatch"

    def __init__(self, expected: object, got: object, where: str) -> None:
        super().__init__(expected, got, where)
        self.expected = expected
        self.got = got
        self.where = where

    def __str__(self) -> str:
        return f"{self.summary} in {self.where}: expected {self.expected}, got {self.got}"


class WireError(Mismatch):
    """Bytes that break the protocol."""

    summary = "malformed data"


class FrameError(WireError):
    """Invalid length prefix of a frame; the connection must be closed."""

    summary = "bad frame"


class FrameTooLarge(FrameError):
    """The announced size is above the limit; nothing was allocated for it."""

    summary = "frame too large"


class FrameTooShort(FrameError):
    """The announced size cannot hold even the smallest header."""

    summary = "frame too short"


class NegativeFrameLength(FrameError):
    """The announced size is negative."""

    summary = "negative frame length"


class MessageError(WireError):
    """The frame does not contain a valid message."""

    summary = "bad message"


class UnknownApiKey(MessageError):
    """No API has this key."""

    summary = "unknown API key"


class UnsupportedVersion(MessageError):
    """The API exists, but not in the requested version."""

    summary = "unsupported API version"


class MalformedMessage(MessageError):
    """The body ends early, has an invalid length, or has text that is not UTF-8."""

    summary = "malformed message"


class BatchError(WireError):
    """Invalid record batch."""

    summary = "bad record batch"


class TruncatedBatch(BatchError):
    """The buffer ends inside the batch."""

    summary = "truncated record batch"


class InvalidBatchLength(BatchError):
    """The length field is negative or too small for a header."""

    summary = "invalid record batch length"


class UnsupportedMagic(BatchError):
    """Message formats v0 and v1 (magic 0 and 1) are not read; Kafka 4 dropped them too."""

    summary = "unsupported message format"


class CrcMismatch(BatchError):
    """The CRC-32C over attributes and records does not match the stored one."""

    summary = "CRC mismatch"


class UnknownCodec(BatchError):
    """The attributes name a compression codec that does not exist."""

    summary = "unknown compression codec"


class DecompressionFailed(BatchError):
    """The compressed block is not valid for its codec."""

    summary = "decompression failed"


class DecompressedTooLarge(BatchError):
    """The block exceeds the limit: a decompression bomb, or a limit that is too low."""

    summary = "decompressed size over the limit"


class RecordError(BatchError):
    """The header is valid, but a record in the batch is not."""

    summary = "bad record"


class InvalidVarint(RecordError):
    """A varint is longer than its type allows or does not end."""

    summary = "invalid varint"


class NegativeLength(RecordError):
    """An invalid negative length; only -1 is allowed, where it means null."""

    summary = "negative length"


class LengthPastEnd(RecordError):
    """A length exceeds its record or the batch."""

    summary = "length past the end"


class RecordCountMismatch(RecordError):
    """The batch holds more or fewer records than its header says."""

    summary = "record count mismatch"
