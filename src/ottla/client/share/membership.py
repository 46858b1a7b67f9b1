"""A member of a share group as the coordinator sees it: pure.

    JOINING  epoch 0, with the subscription              -> STEADY by a good answer
    STEADY   the epoch of the last answer                -> JOINING when fenced, with the same id
    LEAVING  epoch -1, when there are no topics any more -> LEFT by any response
    LEFT     nothing is sent                             -> JOINING when there are topics
    FAILED   nothing more is sent; `failure` says why

- The client creates its member id. If the coordinator answers with another one, that one is used.
- A fenced member has no partitions until it has joined again. Records delivered to it are not
  affected: share sessions do not depend on membership.
- After a failed request to the coordinator the whole state is sent: it may be another one now. The
  whole state is also sent until the coordinator has confirmed a changed subscription.
"""

from __future__ import annotations

import base64
import uuid
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.retry import RETRY, forgets
from ottla.client.errors import ClientError, GroupOfAnotherKind, KafkaError, kafka_error
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.client.share.delivery import Key
    from ottla.wire.schema.share_group_heartbeat import Assignment, ShareGroupHeartbeatResponse

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


def new_member_id() -> str:
    """One that no other member has, in the form that Kafka's own clients use."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


class Phase(Enum):
    """Where a member is in its life."""

    JOINING = "joining"
    STEADY = "steady"
    LEAVING = "leaving"
    LEFT = "left"
    FAILED = "failed"


class Membership:
    """Says what to send and, with each answer or failure, how long to wait before the next."""

    def __init__(
        self, group: str, member_id: str, topics: Sequence[str], rack: str | None = None
    ) -> None:
        self.member_id = member_id
        self.epoch = JOINING_EPOCH
        self.assignment: frozenset[Key] = frozenset()
        self.phase = Phase.JOINING if topics else Phase.LEFT
        self.topics = tuple(topics)
        self.failure: ClientError | None = None
        self.complaint: ClientError | None = None
        """An error to report to the caller once, although joining is still retried."""
        self.interval: float | None = None
        """Seconds between heartbeats, once the coordinator has named them."""
        self.group = group
        self._rack = rack
        self._failures = 0
        # The subscription last sent to the coordinator, and the one being sent.
        self._told: tuple[str, ...] | None = None
        self._telling: tuple[str, ...] | None = None
        self._eager_beats = 0
        self._awaits_partitions = True

    def subscribe(self, topics: Sequence[str]) -> None:
        """Be a member for these topics from now on; without any, be none."""
        self.topics = tuple(topics)
        self._eager_beats = 0
        self._awaits_partitions = True
        if not topics:
            self.assignment = frozenset()
            if self.phase in (Phase.JOINING, Phase.STEADY):
                self.phase = Phase.LEAVING
        elif self.phase in (Phase.LEAVING, Phase.LEFT):
            self.phase = Phase.JOINING
            self.epoch = JOINING_EPOCH

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to send."""
        return self.phase in (Phase.LEFT, Phase.FAILED)

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """What to send now."""
        if self.phase is Phase.LEAVING:
            return ShareGroupHeartbeatRequest(self.group, self.member_id, LEAVING_EPOCH)
        whole = self.phase is Phase.JOINING or self._told != self.topics
        self._telling = self.topics if whole else self._told
        return ShareGroupHeartbeatRequest(
            self.group,
            self.member_id,
            self.epoch,
            self._rack if whole else None,
            list(self.topics) if whole else None,
        )

    def answered(self, answer: ShareGroupHeartbeatResponse, random: float) -> float:
        """Take an answer in; seconds until the next heartbeat."""
        if answer.error_code:
            what = f"be a member of share group {self.group!r}"
            error = kafka_error(answer.error_code, what, answer.error_message)
            return self.failed(GroupOfAnotherKind.of(error), random)
        self._failures = 0
        if answer.member_epoch == LEAVING_EPOCH:
            if self.phase is Phase.LEAVING:
                self.phase = Phase.LEFT
            return 0.0
        self.member_id = answer.member_id or self.member_id
        if self.phase is Phase.LEAVING:
            return 0.0
        self.phase = Phase.STEADY
        self.epoch = answer.member_epoch
        self._told = self._telling
        if answer.assignment is not None:
            self._assigned(answer.assignment)
        interval = answer.heartbeat_interval_ms / 1000
        interval = interval if interval > 0 else DEFAULT_INTERVAL
        self.interval = interval
        if not self._awaits_partitions or self._eager_beats == EAGER_BEATS:
            return interval
        self._eager_beats += 1
        return min(interval, RETRY.delay(self._eager_beats, random))

    def _assigned(self, found: Assignment) -> None:
        before = self.assignment
        self.assignment = frozenset(
            (topic.topic_id, index)
            for topic in found.topic_partitions
            for index in topic.partitions
        )
        self._awaits_partitions &= self.assignment in (before, frozenset())

    def failed(self, error: ClientError, random: float) -> float:
        """Take a failure in; seconds until the next attempt, if there is to be one."""
        if self.phase is Phase.LEAVING:
            # The coordinator will miss this member's heartbeats.
            self.phase = Phase.LEFT
            return 0.0
        self._failures += 1
        self._eager_beats = 0  # another coordinator may have to begin with the partitions, too
        delay = RETRY.delay(self._failures, random)
        code = error.code if isinstance(error, KafkaError) else None
        if code in FENCED:
            self.phase = Phase.JOINING
            self.epoch = JOINING_EPOCH
            self.assignment = frozenset()
            self._awaits_partitions = True
            # A member that is fenced again and again must not keep the coordinator busy.
            return 0.0 if self._failures == 1 else delay
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            if self._failures == 1:
                self.complaint = error
        elif forgets(error, self._failures, repeatable=True) is None:
            self.phase = Phase.FAILED
            self.failure = error
            self.assignment = frozenset()
        self._told = None
        return delay
