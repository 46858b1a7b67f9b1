"""The partitions of a reader's topic, for `Fetching`. Pure.

- Partitions that are created while the topic is read are read from their beginning, unless the
  reader has a stop or was given its partitions.
- A topic that was deleted and created again is another topic (by its id): an error, or a new start
  where `on_data_loss` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.cluster.view import TopicPartition
from ottla.client.reader.fetching import Fetching
from ottla.client.reader.types import EARLIEST, Place, TopicRecreated, place_of
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ottla.client.cluster.view import Topic


@dataclass(kw_only=True)
class Planner(Fetching[int]):
    """The partitions of one reader. `partitions` None means all, those to come included."""

    topic: str
    start: Callable[[int], Place]
    stop: Callable[[int], Place | None]
    partitions: Sequence[int] | None
    known_id: bytes | None = None

    @property
    def topics(self) -> Collection[str]:
        return (self.topic,)

    def name(self, key: int) -> TopicPartition:
        return TopicPartition(self.topic, key)

    def key(self, name: TopicPartition) -> int:
        return name.partition

    def topic_id(self, topic: str) -> bytes | None:
        return self.known_id

    def learn(self, topic: Topic) -> None:
        known = topic.id if topic.id != ZERO_UUID else None
        if None not in (self.known_id, known) and known != self.known_id:
            self._recreated(topic)
            if self.failure is not None:
                return
        self.known_id = known or self.known_id
        self._add_tracks(topic)

    def _recreated(self, topic: Topic) -> None:
        if self.on_data_loss == "error":
            self.failure = TopicRecreated(
                f"topic {self.topic!r} was deleted and created again while it was read; start "
                'over with a new reader, or choose on_data_loss="earliest" or "latest"'
            )
            return
        there = {one.index for one in topic.partitions}
        for number in list(self.tracks):
            del self.tracks[number]
            if number in there:
                self.add(number, place_of("on_data_loss", self.on_data_loss), self.stop(number))

    def _add_tracks(self, topic: Topic) -> None:
        wanted = self.partitions
        if wanted is None:
            wanted = [one.index for one in topic.partitions]
        first = not self.tracks
        for number in wanted:
            if number in self.tracks:
                continue
            stop = self.stop(number)
            if first:
                self.add(number, self.start(number), stop)
            elif stop is None:
                # It is new, so all that is in it came after the start.
                self.add(number, Place(None, EARLIEST))
