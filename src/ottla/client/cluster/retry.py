"""Retry rules: which errors are temporary, what to look up again, how long to wait.

- An error code says the same wherever it comes from: `forgets` names the knowledge it refutes.
- A request that may have been served is repeated only if serving it twice does no harm
  (`repeatable`); one that never left is always repeated.
- Waits grow exponentially up to a limit; each is drawn from the upper half of its interval, so
  that clients that failed together do not come back together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    KafkaError,
    RequestTimedOut,
    TlsFailed,
    WrongProtocol,
)
from ottla.wire.error_codes import ErrorCode


class Stale(Flag):
    """Knowledge that a failure has refuted."""

    NOTHING = 0
    METADATA = auto()
    COORDINATORS = auto()
    EVERYTHING = METADATA | COORDINATORS


_PASSING: Final[dict[int, Stale]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Stale.METADATA,
    ErrorCode.LEADER_NOT_AVAILABLE: Stale.METADATA,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Stale.METADATA,
    ErrorCode.REPLICA_NOT_AVAILABLE: Stale.METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: Stale.METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: Stale.METADATA,
    ErrorCode.INCONSISTENT_TOPIC_ID: Stale.METADATA,
    ErrorCode.KAFKA_STORAGE_ERROR: Stale.METADATA,
    ErrorCode.LISTENER_NOT_FOUND: Stale.METADATA,
    ErrorCode.NOT_CONTROLLER: Stale.METADATA,
    ErrorCode.REBOOTSTRAP_REQUIRED: Stale.EVERYTHING,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Stale.COORDINATORS,
    ErrorCode.NOT_COORDINATOR: Stale.COORDINATORS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Stale.NOTHING,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Stale.NOTHING,
    ErrorCode.OFFSET_NOT_AVAILABLE: Stale.NOTHING,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Stale.NOTHING,
    ErrorCode.CONCURRENT_TRANSACTIONS: Stale.NOTHING,
    ErrorCode.NOT_ENOUGH_REPLICAS: Stale.NOTHING,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Stale.NOTHING,
}

# The broker may have carried out the request before it failed to answer.
_PASSING_IF_REPEATABLE: Final[dict[int, Stale]] = {
    ErrorCode.REQUEST_TIMED_OUT: Stale.NOTHING,
    ErrorCode.NETWORK_EXCEPTION: Stale.METADATA,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Stale.NOTHING,
}

_BUSY: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS})
"""Work of a few milliseconds is in the way, so that the usual wait would be most of the time."""

# A missing topic may just be new. Waiting longer than brokers need to learn of it would only delay
# the error for a misspelt name.
MISSING_TOPIC_ATTEMPTS: Final = 3


def forgets(error: ClientError, attempt: int, *, repeatable: bool) -> Stale | None:
    """What to look up again before attempt number `attempt` + 1, or None if that is pointless."""
    if isinstance(error, WrongProtocol | TlsFailed):
        return None
    if isinstance(error, BrokerUnreachable):
        return Stale.EVERYTHING
    if isinstance(error, ConnectionLost | RequestTimedOut):
        return Stale.EVERYTHING if repeatable else None
    if not isinstance(error, KafkaError):
        return None
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and attempt >= MISSING_TOPIC_ATTEMPTS:
        return None
    stale = _PASSING.get(error.code)
    if stale is None and repeatable:
        stale = _PASSING_IF_REPEATABLE.get(error.code)
    return stale


def is_passing(error: ClientError) -> bool:
    """Whether a retry of the same request may succeed."""
    return isinstance(error, KafkaError) and (
        error.code in _PASSING or error.code in _PASSING_IF_REPEATABLE
    )


def delay_after(error: ClientError, failures: int, random: float) -> float:
    """Seconds to wait after the last of so many failures in a row; `random` is from [0, 1)."""
    busy = isinstance(error, KafkaError) and error.code in _BUSY
    return (BUSY if busy else RETRY).delay(failures, random)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait after the first, second, ... failure in a row."""

    first: float
    limit: float

    def delay(self, failures: int, random: float) -> float:
        """The wait after `failures` failures; `random` is from [0, 1)."""
        # Beyond 2**32 the limit has long been reached, and a float would one day overflow.
        whole = min(self.limit, self.first * 2.0 ** min(failures - 1, 32))
        return whole * (0.5 + random / 2)


RECONNECT: Final = Backoff(first=0.05, limit=1.0)
RETRY: Final = Backoff(first=0.1, limit=1.0)
BUSY: Final = Backoff(first=0.02, limit=1.0)
