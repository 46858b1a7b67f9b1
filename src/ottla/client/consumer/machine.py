"""What both group protocols look like to the shell that speaks them: commands out, answers in.

A member machine is pure. The shell (`group`) sends the request that `next` returns, passes the
outcome back, and asks again. The caller's side is `wish` and `settled`: partitions change only
while the caller is inside a call of the consumer, so the machine waits until the caller has carried
out its wish.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.client.cluster.retry import RETRY, forgets
from ottla.client.errors import GroupOfAnotherKind, KafkaError, kafka_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.cluster.view import Topic, TopicPartition
    from ottla.client.errors import ClientError

NOW: Final = -math.inf


class Send(NamedTuple):
    """A request to the group's coordinator; `patience` seconds more than usual for its answer."""

    request: Any
    patience: float = 0.0


class Learn(NamedTuple):
    """Ask for the metadata of these topics; None: of all there are."""

    topics: frozenset[str] | None


Command: TypeAlias = Send | Learn


class Lost(NamedTuple):
    """The coordinator has given this member's partitions to others already."""


class Own(NamedTuple):
    """Own exactly these partitions: give up the others first, then begin with the new ones."""

    partitions: frozenset[TopicPartition]


Wish: TypeAlias = Lost | Own


class Member(ABC):
    """One member of one group, from its first request to its last."""

    def __init__(self, group: str, topics: Sequence[str]) -> None:
        self.group = group
        self.topics = tuple(topics)
        self.member_id = ""
        self.epoch = -1
        """What commits carry: the generation or the member epoch."""
        self.owned: frozenset[TopicPartition] = frozenset()
        self.failure: ClientError | None = None
        """Why nothing more is sent."""
        self.due = NOW
        """When `next` is to be asked again."""
        self.is_lost = False
        self._failures = 0

    # -- the shell's side -------------------------------------------------------------------------

    @abstractmethod
    def next(self, now: float) -> Command | None:
        """What to do now; None: nothing before `due`."""

    @abstractmethod
    def answered(self, request: Any, answer: Any, now: float, random: float) -> None:
        """Take in an answer without an error."""

    @abstractmethod
    def refused(self, error: KafkaError, now: float, random: float) -> bool:
        """Take in an error code that means something in this protocol; False: it means nothing."""

    @abstractmethod
    def learned(self, topics: Mapping[str, Topic], now: float) -> None:
        """Take in the metadata that `Learn` asked for."""

    @abstractmethod
    def farewell(self) -> Any | None:
        """The request that leaves the group, if this is a member that should leave."""

    def failed(self, error: ClientError, now: float, random: float) -> None:
        """Take in that a command did not succeed."""
        if isinstance(error, KafkaError) and self.refused(error, now, random):
            return
        self._failures += 1
        if forgets(error, self._failures, repeatable=True) is None:
            self.failure = error
            self.due = math.inf
        else:
            self.due = now + RETRY.delay(self._failures, random)

    def failure_of(self, answer: Any) -> KafkaError:
        message = getattr(answer, "error_message", None)
        what = f"be a member of group {self.group!r}"
        return GroupOfAnotherKind.of(kafka_error(answer.error_code, what, message))

    @property
    def is_subscribed(self) -> bool:
        """Whether there is anything to be a member for."""
        return bool(self.topics)

    # -- the caller's side ------------------------------------------------------------------------

    @abstractmethod
    def wish(self) -> Wish | None:
        """What the caller must do before the group can continue."""

    @abstractmethod
    def settled(self, owned: frozenset[TopicPartition]) -> None:
        """The caller has done it and owns these partitions now."""

    @abstractmethod
    def subscribe(self, topics: Sequence[str]) -> None:
        """Be a member for other topics from now on; without any, be none."""

    @property
    @abstractmethod
    def is_steady(self) -> bool:
        """Whether the coordinator takes commits of this member: no rebalance is under way."""

    @abstractmethod
    def expire(self) -> None:
        """The caller has not polled for too long: leave, so that others get its partitions."""
