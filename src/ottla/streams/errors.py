"""Errors of streams. Each names the stream and shard if known, and what to do."""

from __future__ import annotations

from ottla.errors import OttlaError


class StreamError(OttlaError):
    """Base class of all errors of streams."""

    def __init__(
        self,
        message: str,
        *,
        stream: str | None = None,
        shard: int | None = None,
        fix: str | None = None,
    ):
        where = "" if stream is None else f"{stream}: " if shard is None else f"{stream}/{shard}: "
        self.plain = where + message
        """Without `fix`, which a Python program can do and a user of the commands cannot."""
        super().__init__(self.plain if fix is None else f"{self.plain}, {fix}")
        self.stream = stream
        self.shard = shard


class InvalidArgument(StreamError, ValueError):
    """Invalid argument; the call has changed nothing."""


class InvalidType(InvalidArgument, TypeError):
    """An argument of the wrong type; the call has changed nothing."""


class ConnectError(StreamError):
    """The store could not be reached or opened."""


class BackendNotInstalled(ConnectError):
    """The backend's driver is an extra that is not installed."""


class ConfigError(StreamError):
    """Invalid options, or options that exclude each other."""


class GroupIsSet(ConfigError):
    """A real-time consumer takes no group."""


class GroupNotSet(ConfigError):
    """A load-balanced consumer needs a group."""


class LatestButNotLive(ConfigError):
    """A consumer that starts at the end of a file with follow=False would get nothing."""


class SameGroupSameMode(ConfigError):
    """Members of a file group share one reader and must agree on where it starts."""


class InvalidBeaconInterval(ConfigError):
    """Beacon intervals are positive multiples of 1024."""


class NoWildcardInGroup(ConfigError):
    """The wildcard, which subscribes to all streams, cannot be used in a group."""


class NoStoredPosition(ConfigError):
    """No position is stored, and `reset=NONE` forbids choosing one."""


class UrlError(StreamError):
    """Invalid URL."""


class ProtocolRequired(UrlError):
    """The URL has no scheme such as `kafka://`."""


class NoEndingSlash(UrlError):
    """The slash before the stream keys is missing; a URL needs it even without keys."""


class NotOneStreamKey(UrlError):
    """The URL must name exactly one stream here."""


class InvalidStreamKey(StreamError):
    """A stream key has 1 to 249 characters of `[A-Za-z0-9._-]` and must not be a reserved name."""


class StreamKeyEmpty(StreamError):
    """No stream is named."""


class StreamKeyNotFound(StreamError):
    """The stream does not exist or is not subscribed."""


class ShardNotAssigned(StreamKeyNotFound):
    """The shard was not assigned to this consumer."""


class AlreadyAnchored(StreamError):
    """The producer has an anchored stream already."""


class NotAnchored(StreamError):
    """`send` without `stream=` on a producer without an anchored stream."""


class CommitNotAllowed(StreamError):
    """This consumer has nowhere to commit to."""


class Evicted(StreamError):
    """The group removed this consumer; messages it did not commit are delivered again."""


class AckNotAllowed(StreamError):
    """`ack` is not allowed: with this `auto_commit` messages are acknowledged automatically."""


class Unsupported(StreamError):
    """This store cannot do that; the message says why."""


class ConsumerBusy(StreamError):
    """An `async for` is running on this consumer, or it is to be opened twice."""


class ConsumerClosed(StreamError):
    """The consumer was closed."""


class StreamEnded(StreamError):
    """There will be no further message."""


class ProducerEnded(StreamError):
    """The producer was ended or closed."""


class DeliveryError(StreamError):
    """The store did not accept a message, or its answer was lost."""


class PayloadDecodeError(StreamError):
    """The payload is not valid UTF-8; `payload` has the bytes."""

    def __init__(self, message: str, payload: bytes):
        super().__init__(message)
        self.payload = payload


class FormatError(StreamError):
    """Malformed data; `offset` is the place in the file."""

    def __init__(self, message: str, *, offset: int | None = None, stream: str | None = None):
        super().__init__(
            message if offset is None else f"at byte {offset}: {message}", stream=stream
        )
        self.offset = offset


class ChecksumError(FormatError):
    """A payload does not match its checksum."""


class TruncatedFile(FormatError):
    """The file ends inside a message or inside its header."""


class SequenceOverflow(FormatError):
    """The store's id does not fit into a sequence; `native_id` has it."""

    def __init__(self, message: str, native_id: str):
        super().__init__(message)
        self.native_id = native_id


class GroupLost(StreamError):
    """The consumer group disappeared while it was in use."""


class SeekOutOfRange(StreamError):
    """There is nothing at or after that place; the consumer stays where it was."""


class PositionOutOfRange(StreamError):
    """A stored position lies beyond the end of the stream."""


class FileLimitExceeded(StreamError):
    """The message does not fit within the size limit of the file; nothing was written."""


class FileBusy(StreamError):
    """Another process writes this file."""
