"""Errors of the clients.

Every failure a caller may have to handle is a `ClientError`; its text is one sentence a user can
act on. `KafkaError` is an answer that carries an error code, the others mean there is no answer.
`ottla.errors` offers all of them, those of single clients included, under one name.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ottla.errors import OttlaError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Failure = TypeVar("Failure", bound=OttlaError)


class ClientError(OttlaError):
    """The call did not succeed."""


class BadArgument(ClientError, ValueError):
    """Invalid argument; nothing was sent."""


class WrongType(BadArgument, TypeError):
    """An argument of the wrong type; nothing was sent."""


class MissingExtra(ClientError, ImportError):
    """The call needs a package that comes with an extra of Ottla."""


class ClientFault(ClientError):
    """An error that the client did not foresee; its cause and the log have more. Please report it.

    Only the call, or the batch of records, in which it happened fails; the client continues to
    work.
    """

    @classmethod
    def of(cls, doing: str, error: BaseException) -> Self:
        """Internal: wrap an unexpected error."""
        fault = cls(f"{doing}: unexpected {type(error).__name__}: {error}")
        fault.__cause__ = error
        return fault


class ConnectionLost(ClientError):
    """The connection ended before the answer came; whether the request was served is unknown."""


class BrokerUnreachable(ConnectionLost):
    """There was no connection to begin with, so the request was certainly not served."""


class HeldByQuota(BrokerUnreachable):
    """A broker told the client to wait, for a quota, and the request's time was over before that.

    It was not sent.
    """


class WrongProtocol(BrokerUnreachable):
    """The server at this address does not speak Kafka's protocol."""


class TlsFailed(BrokerUnreachable):
    """There is no TLS connection; the message says what is wrong with it. A retry does not help."""


class RequestTimedOut(ClientError):
    """No answer in time; whether the request was served is unknown."""


class WrongPlace(OttlaError, RuntimeError):
    """A client was called where it cannot work: in another event loop, or after a fork."""


class ClientClosed(ClientError):
    """The client was closed before or during the call."""


class UnsupportedApi(ClientError):
    """The broker does not serve the API, or no suitable version of it."""


class UnsupportedSecurity(ClientError):
    """Unsupported security setting."""


class AuthenticationFailed(ClientError):
    """The broker refused the login, or did not prove itself. A retry does not help."""


REFUSED: Final = (AuthenticationFailed, UnsupportedSecurity, TlsFailed)
"""There will be no connection, however often one is tried."""

_HINTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "check the name with a list of the topics, or create it"
    ),
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has live members; stop its consumers and try again",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers and try again",
    ErrorCode.GROUP_ID_NOT_FOUND: "check the name with a list of the groups",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "check the id with a list of the transactions",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the consumers that are subscribed to the topic",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete the topic first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
    ),
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is at least 1 and can only grow",
    ErrorCode.INVALID_REPLICATION_FACTOR: "use at most as many replicas as there are brokers",
    ErrorCode.OFFSET_OUT_OF_RANGE: "use an offset between the log's start and its end",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the broker",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "stop one of the group's members, or allow it more",
    ErrorCode.INVALID_RECORD_STATE: (
        "the lock had ended or the record was acknowledged before; renew locks during long work"
    ),
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "its records are delivered again; poll for them",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "its records are delivered again; poll for them",
}


class KafkaError(ClientError):
    """The broker answered with an error code; the message says what to do."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        super().__init__(code, what, message)
        self.code = code
        self.what = what
        self.message = message

    @property
    def name(self) -> str:
        """Kafka's name of the code."""
        try:
            return ErrorCode(self.code).name
        except ValueError:
            return f"ERROR_CODE_{self.code}"

    @property
    def hint(self) -> str | None:
        """What usually helps, if known."""
        return _HINTS.get(self.code)  # type: ignore[call-overload, no-any-return]  # an IntEnum hashes as its int

    def __str__(self) -> str:
        said = f"{self.what}: {self.name}"
        if self.message:
            said += f" ({self.message.rstrip('.')})"
        if self.hint:
            said += f"; {self.hint}"
        return said


class UnknownTopic(KafkaError):
    """The topic or partition does not exist."""


class AuthorizationFailed(KafkaError):
    """The user may not do this. `what` says what was tried, and `resource` on what."""

    resource = "the resource"

    @property
    def hint(self) -> str:
        """Whom to ask for what."""
        return f"ask for an ACL that allows it on {self.resource}"


class TopicAuthorizationFailed(AuthorizationFailed):
    """The user may not do this with the topic; whether it exists is not told."""

    resource = "the topic"


class GroupAuthorizationFailed(AuthorizationFailed):
    """The user may not do this with the group."""

    resource = "the group"


class ClusterAuthorizationFailed(AuthorizationFailed):
    """The user may not do this with the cluster."""

    resource = "the cluster"


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """The user may not use the transactional id."""

    resource = "the transactional id"


class GroupOfAnotherKind(KafkaError):
    """The name of the group belongs to a group of another kind, or of another protocol."""

    @classmethod
    def of(cls, error: KafkaError) -> KafkaError:
        """The error as this class if its code means so for a joining member, else unchanged."""
        if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
            return cls(error.code, error.what, error.message)
        return error

    @property
    def hint(self) -> str:
        """How to go on."""
        if self.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return (
                "its members have no assignor in common with this one, or it is a share group: "
                "choose the same assignor, or another name"
            )
        return (
            "a group of another kind has this name (consumer groups and share groups share their "
            "names, and a classic group with members is not a consumer group): choose another name"
        )


class NotSubscribed(ClientError):
    """The consumer has no topics; call `subscribe` first."""


class PartialFailure(ExceptionGroup["ClientError"], ClientError):
    """A call failed for the names in `failures`; it succeeded for the others.

    `except*` handles the errors one by one.
    """

    failures: Mapping[Any, ClientError]

    @classmethod
    def of(cls, what: str, outcomes: Mapping[Any, ClientError | None]) -> Self:
        """Internal: make the error from outcomes; at least one has failed."""
        failures = {key: error for key, error in outcomes.items() if error is not None}
        told = "; ".join(map(str, failures.values()))
        counted = f"{what}: {len(failures)} of {len(outcomes)} failed: {told}"
        error = cls(counted, list(failures.values()))
        error.failures = failures
        return error

    def derive(self, excs: Sequence[ClientError]) -> PartialFailure:  # type: ignore[override]  # of ours alone
        """A part of the group, for `except*`."""
        kept = {key: error for key, error in self.failures.items() if error in excs}
        part = PartialFailure(self.message, excs)
        part.failures = kept
        return part


def raise_failures(what: str, outcomes: Mapping[Any, ClientError | None]) -> None:
    """Raise `PartialFailure` if a part has failed, or the error if all have, for one reason."""
    failures = [error for error in outcomes.values() if error is not None]
    if not failures:
        return
    reasons = {error.code if isinstance(error, KafkaError) else type(error) for error in failures}
    if len(reasons) == 1 and len(failures) == len(outcomes):
        raise failures[0]
    raise PartialFailure.of(what, outcomes)


_KINDS: Final[dict[int, type[KafkaError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationFailed,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationFailed,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationFailed,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionalIdAuthorizationFailed,
}


def kafka_error(code: int, what: str, message: str | None = None) -> KafkaError:
    """The exception for an error code."""
    return _KINDS.get(code, KafkaError)(code, what, message)


def afresh(error: Failure) -> Failure:
    """A copy to raise: an exception shared by callers would collect their tracebacks."""
    fresh = copy.copy(error)
    fresh.__cause__ = error
    return fresh


def failure(code: int, what: str, message: str | None = None) -> KafkaError | None:
    """The exception for an error code; None for 0."""
    return kafka_error(code, what, message) if code else None


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise the exception for an error code; 0 is success."""
    if code:
        raise kafka_error(code, what, message)
