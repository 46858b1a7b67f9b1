"""A member of a share group as the coordinator sees it: pure.

    JOINING  epoch 0, with the subscription              -> STEADY by a good answer
    STEADY   the epoch of the last answer                -> JOINING when fenced, with the same id
    FAILED   nothing more is sent; `failure` says why
    LEFT     after `leave`

- The id is made by the client. A coordinator that answers with another one is taken at its word.
- A fenced member has no partitions until it has joined again. What it was delivered is not
  affected: share sessions do not ask who is a member.
- After a failure to reach the coordinator the whole state is sent: it may be another one now.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError, KafkaError
from ottla.client.retry import RETRY, forgets
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.share_acks import Key
    from ottla.wire.schema.share_group_heartbeat import ShareGroupHeartbeatResponse

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
# Brokers hand out a new group's partitions with a later answer than the first, which need not wait
# for a whole interval. A group whose topics do not exist goes on at the usual pace after these.
EAGER_BEATS: Final = 5
DEFAULT_INTERVAL: Final = 3.0  # where a coordinator names none

FENCED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class Phase(Enum):
    """Where a member is in its life."""

    JOINING = "joining"
    STEADY = "steady"
    FAILED = "failed"
    LEFT = "left"


class Membership:
    """Says what to send and, with each answer or failure, how long to wait before the next."""

    def __init__(
        self, group: str, member_id: str, topics: Sequence[str], rack: str | None = None
    ) -> None:
        self.member_id = member_id
        self.epoch = JOINING_EPOCH
        self.assignment: frozenset[Key] = frozenset()
        self.phase = Phase.JOINING
        self.failure: ClientError | None = None
        self.complaint: ClientError | None = None
        """What the caller should hear once, though there is hope."""
        self._group = group
        self._topics = list(topics)
        self._rack = rack
        self._failures = 0
        self._resends = False
        self._eager_beats = 0

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """What to send now."""
        whole = self.phase is Phase.JOINING or self._resends
        return ShareGroupHeartbeatRequest(
            self._group,
            self.member_id,
            self.epoch,
            self._rack if whole else None,
            self._topics if whole else None,
        )

    def leave(self) -> ShareGroupHeartbeatRequest:
        """The last thing to send."""
        self.phase = Phase.LEFT
        self.assignment = frozenset()
        return ShareGroupHeartbeatRequest(self._group, self.member_id, LEAVING_EPOCH)

    def answered(self, answer: ShareGroupHeartbeatResponse, random: float) -> float:
        """Take an answer in; seconds until the next heartbeat."""
        if answer.error_code:
            what = f"be a member of share group {self._group!r}"
            return self.failed(KafkaError(answer.error_code, what, answer.error_message), random)
        self.phase = Phase.STEADY
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        self._failures = 0
        self._resends = False
        if answer.assignment is not None:
            self.assignment = frozenset(
                (topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            )
        interval = answer.heartbeat_interval_ms / 1000
        interval = interval if interval > 0 else DEFAULT_INTERVAL
        if self.assignment or self._eager_beats == EAGER_BEATS:
            return interval
        self._eager_beats += 1
        return min(interval, RETRY.delay(self._eager_beats, random))

    def failed(self, error: ClientError, random: float) -> float:
        """Take a failure in; seconds until the next attempt, if there is to be one."""
        self._failures += 1
        delay = RETRY.delay(self._failures, random)
        code = error.code if isinstance(error, KafkaError) else None
        if code in FENCED:
            self.phase = Phase.JOINING
            self.epoch = JOINING_EPOCH
            self.assignment = frozenset()
            # A member that is fenced again and again must not keep the coordinator busy.
            return 0.0 if self._failures == 1 else delay
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            if self._failures == 1:
                self.complaint = error
        elif forgets(error, self._failures, repeatable=True) is None:
            self.phase = Phase.FAILED
            self.failure = error
            self.assignment = frozenset()
        self._resends = True
        return delay
