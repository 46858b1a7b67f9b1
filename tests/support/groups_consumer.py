"""KIP-848 members for tests: each keeps the epoch and the partitions a client would."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.coordination.groups.messages import ConsumerHeartbeat, ConsumerHeartbeatResponse
from ottla.coordination.groups.topics import Topic, TopicsImage
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from ottla.coordination.groups.config import ConsumerSettings
    from ottla.coordination.groups.partitions import Partitions
    from tests.support.groups_driver import Driver

REBALANCE_MS = 20_000


def topics_image(version: int = 1, **counts: int) -> TopicsImage:
    """Topics with partition counts; the id of a topic follows from its name."""
    return TopicsImage(
        {name: Topic(topic_id(name), name, count) for name, count in counts.items()}, version
    )


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"\x00"))


def of(name: str, *partitions: int) -> Partitions:
    return frozenset((topic_id(name), partition) for partition in partitions)


class Client:
    """Does what a consumer does: gives up what is gone from its assignment, then says so."""

    def __init__(
        self,
        driver: Driver,
        member_id: str,
        *topics: str,
        regex: str = "",
        instance: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.driver = driver
        self.member_id = member_id
        self.topics = topics
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.epoch = 0
        self.owned: Partitions = frozenset()
        self.told: Partitions = frozenset()
        self.image = topics_image()
        self.settings: ConsumerSettings | None = None

    def send(
        self,
        epoch: int,
        *,
        owned: Partitions | None = None,
        full: bool = False,
        member_id: str | None = None,
    ) -> ConsumerHeartbeatResponse:
        """The answer, for which a large group lets its members wait."""
        return self.driver.wait(
            self.begin(epoch, owned=owned, full=full, member_id=member_id),
            ConsumerHeartbeatResponse,
        )

    def begin(
        self,
        epoch: int,
        *,
        owned: Partitions | None = None,
        full: bool = False,
        member_id: str | None = None,
    ) -> int:
        """The token of the heartbeat."""
        request = ConsumerHeartbeat(
            "g",
            self.member_id if member_id is None else member_id,
            epoch,
            self.image,
            fresh_id="fresh",
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            topic_names=self.topics if full else None,
            regex=self.regex if full else None,
            assignor=self.assignor if full else None,
            settings=self.settings,
            owned=owned,
            client_id="c",
            client_host="/h",
        )
        return self.driver.send(request)

    def join(self) -> ConsumerHeartbeatResponse:
        """Owns nothing and learns its first assignment."""
        self.owned = self.told = frozenset()
        return self.take(self.send(0, owned=frozenset(), full=True))

    def beat(self, *, owned: Partitions | None = None) -> ConsumerHeartbeatResponse:
        return self.take(self.send(self.epoch, owned=owned))

    def settle(self) -> ConsumerHeartbeatResponse:
        """Gives up what it must, takes what it got, and reports the result."""
        self.owned = self.told
        return self.beat(owned=self.owned)

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatResponse:
        self.owned = self.told = frozenset()
        return self.send(epoch)

    def take(self, answer: ConsumerHeartbeatResponse) -> ConsumerHeartbeatResponse:
        """Hears an answer."""
        if answer.error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.told = answer.assignment
                # New partitions are used at once; lost ones until the client gives them up.
                self.owned |= self.told
        return answer


def settle_all(*clients: Client, rounds: int = 4) -> None:
    for _ in range(rounds):
        for client in clients:
            client.settle()
