"""The partitions a group member owns, as the planner of fetches sees them: pure."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import UnknownTopic
from ottla.client.reader.fetching import Fetching
from ottla.client.reader.types import EARLIEST, Place
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.client.cluster.view import Topic
    from ottla.client.errors import ClientError

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Owned(Fetching[TopicPartition]):
    """Partitions come by `add` and go by `drop`; paused ones are not fetched."""

    paused: set[TopicPartition] = field(default_factory=set)
    _ids: dict[str, bytes] = field(default_factory=dict)

    @property
    def topics(self) -> Collection[str]:
        return {key.topic for key in self.tracks}

    def name(self, key: TopicPartition) -> TopicPartition:
        return key

    def key(self, name: TopicPartition) -> TopicPartition:
        return name

    def topic_id(self, topic: str) -> bytes | None:
        return self._ids.get(topic)

    def drop(self, key: TopicPartition) -> None:
        """Read it no more."""
        self.tracks.pop(key, None)
        self.paused.discard(key)

    def added(self) -> None:
        """Partitions have come: their leaders are to be found at once."""
        self._refresh_at = self._refresh_failing_since = 0.0
        self._refreshing = False

    def learn(self, topic: Topic) -> None:
        known = self._ids.get(topic.name)
        if topic.id == ZERO_UUID:
            return
        self._ids[topic.name] = topic.id
        if known in (None, topic.id):
            return
        # Recreated: its offsets mean nothing any more.
        logger.warning("topic %s was deleted and recreated; reading it from its start", topic.name)
        for key in [key for key in self.tracks if key.topic == topic.name]:
            self.add(key, Place(None, EARLIEST))

    def refresh_failed(self, error: ClientError, now: float, began: float | None = None) -> None:
        super().refresh_failed(error, now, began)
        if isinstance(self.failure, UnknownTopic):
            # The group takes deleted topics away from its members.
            logger.warning("%s", self.failure)
            self.failure = None

    def _is_fetchable(self, key: TopicPartition) -> bool:
        return key not in self.paused and super()._is_fetchable(key)
