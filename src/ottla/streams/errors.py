"""What can go wrong with a stream. Each error says stream and shard where known, and the fix."""

from __future__ import annotations

from ottla.errors import OttlaError


class StreamError(OttlaError):
    """Base of all errors of the streams room."""

    def __init__(self, message: str, *, stream: str | None = None, shard: int | None = None):
        where = "" if stream is None else f"{stream}: " if shard is None else f"{stream}/{shard}: "
        super().__init__(where + message)
        self.stream = stream
        self.shard = shard


class InvalidArgument(StreamError, ValueError):
    """An argument that a call cannot take; the call has changed nothing."""


class InvalidType(InvalidArgument, TypeError):
    """An argument of the wrong type; the call has changed nothing."""


class ConnectError(StreamError):
    """The store could not be reached or opened."""


class BackendNotInstalled(ConnectError):
    """The backend's driver is an extra that is not installed."""


class ConfigError(StreamError):
    """Options that cannot work together."""


class GroupIsSet(ConfigError):
    """A real-time consumer takes no group."""


class GroupNotSet(ConfigError):
    """A load-balanced consumer needs a group."""


class LatestButNotLive(ConfigError):
    """Starting at the end of a file without following it would deliver nothing."""


class SameGroupSameMode(ConfigError):
    """Members of a file group share one reader and must agree on where it starts."""


class InvalidBeaconInterval(ConfigError):
    """Beacon intervals are positive multiples of 1024."""


class NoWildcardInGroup(ConfigError):
    """The wildcard subscribes to all streams, ungrouped only."""


class NoStoredPosition(ConfigError):
    """There is no prior state and `reset=NONE` forbids to choose a start."""


class UrlError(StreamError):
    """A URL that cannot be read."""


class ProtocolRequired(UrlError):
    """A URL without nodes needs a scheme."""


class NoEndingSlash(UrlError):
    """A stream URL has a slash before its keys, even if there are none."""


class NotOneStreamKey(UrlError):
    """`.stream` of a URL that has no key or several."""


class InvalidStreamKey(StreamError):
    """Stream keys are 1 to 249 of `[A-Za-z0-9._-]` and not reserved."""


class StreamKeyEmpty(StreamError):
    """No stream is named."""


class StreamKeyNotFound(StreamError):
    """A stream that is not there or not subscribed."""


class ShardNotAssigned(StreamKeyNotFound):
    """A shard that was not assigned to this consumer."""


class AlreadyAnchored(StreamError):
    """A producer has at most one anchored stream."""


class NotAnchored(StreamError):
    """`send` without `stream=` on a producer without an anchored stream."""


class CommitNotAllowed(StreamError):
    """This consumer has nowhere to commit to."""


class Evicted(StreamError):
    """The group went on without this consumer: what it did not commit is delivered again."""


class AckNotAllowed(StreamError):
    """The auto-commit policy acknowledges by itself."""


class Unsupported(StreamError):
    """What this backend cannot do, and why."""


class ConsumerBusy(StreamError):
    """A live iterator owns the consumer."""


class ConsumerClosed(StreamError):
    """The consumer was closed."""


class StreamEnded(StreamError):
    """There will be no further message."""


class ProducerEnded(StreamError):
    """The producer was ended or closed."""


class DeliveryError(StreamError):
    """A message was not taken in."""


class PayloadDecodeError(StreamError):
    """A payload that is not the text it was read as; `payload` keeps the bytes."""

    def __init__(self, message: str, payload: bytes):
        super().__init__(message)
        self.payload = payload


class FormatError(StreamError):
    """Bytes that are not what the format says; `offset` is where in the file."""

    def __init__(self, message: str, *, offset: int | None = None, stream: str | None = None):
        super().__init__(
            message if offset is None else f"at byte {offset}: {message}", stream=stream
        )
        self.offset = offset


class ChecksumError(FormatError):
    """A payload that does not match its checksum."""


class TruncatedFile(FormatError):
    """The file ends inside a frame, or inside its header."""


class SequenceOverflow(FormatError):
    """A native identity that does not fit the sequence; `native_id` keeps it."""

    def __init__(self, message: str, native_id: str):
        super().__init__(message)
        self.native_id = native_id


class GroupLost(StreamError):
    """The consumer group disappeared while it was in use."""


class SeekOutOfRange(StreamError):
    """Nothing lies at or after the place asked for; the old position still holds."""


class PositionOutOfRange(StreamError):
    """A stored position lies beyond the end of the stream."""


class FileLimitExceeded(StreamError):
    """The frame would not fit within the file's size limit; nothing was written."""


class FileBusy(StreamError):
    """Another process writes this file."""
