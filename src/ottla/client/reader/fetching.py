"""Plan the fetches of a reader or of a member of a consumer group. Pure.

`Fetching` is what both have in common; the reader's own part is in `ottla.client.reader.planner`.

Rules:

- A partition is looked up (`Lookup`) until its offset and its end are known, then fetched (`Fetch`)
  until it has reached its end; without an end, fetching never stops. A given offset beyond the end
  is fetched once, for the broker to say whether the log has it; what comes is left out.
- A leader has at most one Fetch in flight, with all of its partitions that can be asked for.
  Partitions that returned data go to the back, since brokers fill a response in the order of the
  request.
- A Fetch that waits for records delays the partitions that are not part of it. If one of them is
  new or was sought (`is_urgent`), the Fetch is replaced after `OVERTAKE_AFTER` seconds by one with
  all partitions; its own answer is void. A second one waits until the first void one has ended.
- Fetches in flight ask for no more than the buffer has space for. Only a first batch that is larger
  than the limit exceeds that, and an empty buffer always fetches.
- After a temporary failure the partition backs off; a failure that lasts longer than `patience`, or
  a permanent one, becomes `failure`. Until `take_failure` is called nothing is planned; then the
  planner tries again.
- After a failure that may mean a new leader, the partition has no leader until metadata arrives.
- A seek invalidates the responses to earlier requests for the partition (`version`).
- Times are seconds of any steady clock.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from ottla.client.cluster.retry import RETRY, Stale, forgets
from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.client.errors import kafka_error
from ottla.client.reader.types import (
    LATEST,
    DataLost,
    OnDataLoss,
    Place,
    place_of,
)
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from ottla.client.cluster.view import Topic
    from ottla.client.errors import ClientError, KafkaError

# The key of a partition: its number if there is one topic, otherwise topic and number.
K = TypeVar("K", bound=Hashable)

# Large enough that a request costs nothing beside its bytes, small enough to overlap with decoding.
FETCH_BYTES: Final = 8 * 1024 * 1024
# Seconds. A leader with records answers sooner; one without waits as long as the request allows.
OVERTAKE_AFTER: Final = 0.05


@dataclass(slots=True)
class Track:
    """A partition: where it is to be fetched next, where it ends, what keeps it from that."""

    start: Place
    stop: Place | None
    offset: int | None = None
    end: int | None = None
    is_confirmed: bool = False  # a broker has told the offset, or has served it
    version: int = 0
    leader: int = NO_LEADER
    leader_epoch: int = -1
    asked: bool = False
    is_urgent: bool = True
    failures: int = 0
    failing_since: float = 0.0
    not_before: float = -math.inf

    def __post_init__(self) -> None:
        self.offset = self.start.offset
        self.end = None if self.stop is None else self.stop.offset

    @property
    def is_found(self) -> bool:
        """Whether both the offset and the end, if there is to be one, are known."""
        return self.offset is not None and (self.stop is None or self.end is not None)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to fetch."""
        if self.end is None or self.offset is None:
            return False
        return self.offset == self.end or (self.offset > self.end and self.is_confirmed)


class LookedUp(NamedTuple):
    """A partition's part of the answer to a Lookup."""

    error_code: int
    offset: int


class Fetched(NamedTuple):
    """A partition's part of the answer to a Fetch; `next_offset` is None where no batch came."""

    error_code: int
    next_offset: int | None


class Asked(NamedTuple):
    """A partition's part of a question: `at` is the offset to fetch or the timestamp to look up."""

    at: int
    leader_epoch: int
    version: int


class Lookup(NamedTuple, Generic[K]):
    """Find the offsets for timestamps."""

    node: int
    asked: Mapping[K, Asked]


class Fetch(NamedTuple, Generic[K]):
    """Fetch from offsets."""

    node: int
    asked: Mapping[K, Asked]
    max_bytes: int


Question: TypeAlias = Lookup[K] | Fetch[K]


class InFlight(NamedTuple, Generic[K]):
    """The Fetch of a leader, and when it was planned."""

    fetch: Fetch[K]
    since: float


@dataclass(kw_only=True)
class Fetching(ABC, Generic[K]):
    """Partitions, where to read them next, and what keeps them from it."""

    prefetch: int
    patience: float
    metadata_max_age: float
    random: Callable[[], float]
    on_data_loss: OnDataLoss = "error"
    tracks: dict[K, Track] = field(default_factory=dict)
    failure: ClientError | None = None
    trouble: ClientError | None = None
    """What went wrong last, even if it may pass."""
    _fetching: dict[int, InFlight[K]] = field(default_factory=dict)  # by node
    _overtaken: set[int] = field(default_factory=set)  # nodes that have yet to answer a void Fetch
    _refreshing: bool = False
    _refresh_at: float = -math.inf
    _refresh_failures: int = 0
    _refresh_failing_since: float = 0.0
    _versions: int = 0

    @property
    def is_found(self) -> bool:
        """Whether all partitions are known, and where to read in them."""
        return bool(self.tracks) and all(track.is_found for track in self.tracks.values())

    def take_failure(self) -> ClientError | None:
        """What went wrong, once; after that the planner tries again."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self._refresh_failures = 0
            for track in self.tracks.values():
                track.failures = 0
        return failure

    @property
    @abstractmethod
    def topics(self) -> Collection[str]:
        """The topics whose metadata is wanted."""

    @abstractmethod
    def name(self, key: K) -> TopicPartition:
        """The topic and number of a key."""

    @abstractmethod
    def key(self, name: TopicPartition) -> K:
        """The key of a partition."""

    @abstractmethod
    def topic_id(self, topic: str) -> bytes | None:
        """The id under which a topic is known, if brokers give it one."""

    @abstractmethod
    def learn(self, topic: Topic) -> None:
        """Take in which partitions a topic has, before their leaders are set."""

    # What to do now.

    def plan(self, now: float, buffered: int) -> list[Question[K]]:
        """The questions to send now, when this many bytes wait to be read."""
        if self.failure is not None:
            return []
        ready: dict[int, list[K]] = {}
        for key, track in self.tracks.items():
            if track.leader != NO_LEADER and not track.asked and track.not_before <= now:
                ready.setdefault(track.leader, []).append(key)
        questions: list[Question[K]] = []
        for node, keys in ready.items():
            lookup = {key: self._ask(key) for key in keys if not self.tracks[key].is_found}
            if lookup:
                questions.append(Lookup(node, lookup))
        share = self._share()
        for node, keys in ready.items():
            fetchable = [key for key in keys if self._is_fetchable(key)]
            if not fetchable or not self._has_room(buffered, share, node):
                continue
            if node in self._fetching:
                if now < min(self._overtake_at(key) for key in fetchable):
                    continue
                fetchable += self._overtake(node)
            fetch = Fetch(node, {key: self._ask(key) for key in fetchable}, share)
            for key in fetchable:
                self.tracks[key].is_urgent = False
            self._fetching[node] = InFlight(fetch, now)
            questions.append(fetch)
        return questions

    def _overtake_at(self, key: K) -> float:
        """When a partition need not wait any longer for a Fetch of its leader without it."""
        track = self.tracks[key]
        open_one = self._fetching.get(track.leader)
        if open_one is None or not track.is_urgent or track.leader in self._overtaken:
            return math.inf
        return open_one.since + OVERTAKE_AFTER

    def _overtake(self, node: int) -> list[K]:
        """Void a Fetch in flight; gives its partitions, which are to be asked for once more."""
        fetch = self._fetching.pop(node).fetch
        self._overtaken.add(node)
        again = []
        for key, asked in fetch.asked.items():
            track = self._answered(key, asked)
            if track is not None:
                track.version = self._new_version()
                if self._is_fetchable(key):
                    again.append(key)
        return again

    def wants_metadata(self, now: float) -> bool:
        """Whether to ask for the topic's metadata now; yes is said once until it is answered."""
        if self.failure is not None or self._refreshing or now < self._refresh_at:
            return False
        self._refreshing = True
        return True

    def wake_at(self, now: float) -> float:
        """When to ask for plans again, if nothing happens before."""
        if self.failure is not None:
            return math.inf
        waiting = [
            when
            for key, track in self.tracks.items()
            if not track.asked
            for when in (track.not_before, self._overtake_at(key))
            if when > now
        ]
        if not self._refreshing:
            waiting.append(self._refresh_at)
        return min(waiting, default=math.inf)

    def seek(self, key: K, start: Place) -> None:
        """Read on from another place; earlier questions about the partition are void."""
        track = self.tracks[key]
        track.start = start
        track.offset = start.offset
        track.is_confirmed = False
        track.version = self._new_version()
        track.asked = False
        track.is_urgent = True
        track.not_before = -math.inf

    # What has come back.

    def looked_up(
        self, question: Lookup[K], answer: Mapping[K, LookedUp], now: float
    ) -> dict[K, int]:
        """Take in an answer; gives the offsets of the partitions that have one now."""
        found = {}
        for key, asked in question.asked.items():
            track = self._answered(key, asked)
            if track is None:
                continue
            code, offset = answer.get(key, LookedUp(ErrorCode.UNKNOWN_SERVER_ERROR, -1))
            if code:
                self._trouble(track, kafka_error(code, f"find an offset in {self.name(key)}"), now)
                continue
            track.failures = 0
            # No record at or after the time: the place is the end.
            place = Place(offset) if offset >= 0 else Place(None, LATEST)
            if track.offset is None:
                track.start, track.offset = place, place.offset
                track.is_confirmed = True
                if track.offset is not None:
                    found[key] = track.offset
            else:
                track.stop, track.end = place, place.offset
        return found

    def fetched(self, question: Fetch[K], answer: Mapping[K, Fetched], now: float) -> list[K]:
        """Take in an answer; gives the partitions whose records are the next to be read."""
        self._ended(question)
        taken = []
        for key, asked in question.asked.items():
            track = self._answered(key, asked)
            if track is None:
                continue
            code, next_offset = answer.get(key, Fetched(ErrorCode.UNKNOWN_SERVER_ERROR, None))
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._lost(key, track)
            elif code:
                what = f"read {self.name(key)} at offset {asked.at}"
                self._trouble(track, kafka_error(code, what), now)
            else:
                track.failures = 0
                track.is_confirmed = True
                if next_offset is not None and next_offset > asked.at and not track.is_done:
                    track.offset = next_offset
                    self.tracks[key] = self.tracks.pop(key)
                    taken.append(key)
        return taken

    def held(self, question: Fetch[K]) -> None:
        """Take in that a broker served nothing, because the client was over a quota."""
        self._ended(question)
        for key, asked in question.asked.items():
            track = self._answered(key, asked)
            if track is not None:
                track.failures = 0

    def failed(
        self, question: Question[K], error: ClientError, now: float, began: float | None = None
    ) -> None:
        """Take in that a question, asked when it `began`, got no answer."""
        if isinstance(question, Fetch):
            self._ended(question)
        for key, asked in question.asked.items():
            track = self._answered(key, asked)
            if track is not None:
                self._trouble(track, error, now, began)

    def refreshed(self, found: Mapping[str, Topic], now: float) -> None:
        """Apply the metadata of topics; missing wanted partitions are failures."""
        self._refreshing = False
        for name in self.topics:
            if name in found:
                self.learn(found[name])
        if self.failure is not None:
            return
        leaders = {
            TopicPartition(topic.name, one.index): one
            for topic in found.values()
            for one in topic.partitions
        }
        trouble: KafkaError | None = None
        for key, track in self.tracks.items():
            one = leaders.get(self.name(key))
            track.leader = NO_LEADER if one is None else one.leader
            track.leader_epoch = -1 if one is None else one.leader_epoch
            if track.leader == NO_LEADER and not track.is_done:
                code = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if one is None
                    else ErrorCode.LEADER_NOT_AVAILABLE
                )
                trouble = kafka_error(code, f"find the leader of {self.name(key)}")
        if trouble is not None:
            self.refresh_failed(trouble, now)
            return
        self._refresh_failures = 0
        self._refresh_at = now + self.metadata_max_age

    def refresh_failed(self, error: ClientError, now: float, began: float | None = None) -> None:
        """Take in that metadata, asked for when it `began`, did not come or lacks a partition."""
        self._refreshing = False
        self.trouble = error
        self._refresh_failures += 1
        if self._refresh_failures == 1:
            self._refresh_failing_since = now if began is None else began
        lasts = now - self._refresh_failing_since
        if (
            forgets(error, self._refresh_failures, repeatable=True) is None
            or lasts >= self.patience
        ):
            self.failure = self.failure or error
        self._refresh_at = now + RETRY.delay(self._refresh_failures, self.random())

    # Helpers.

    def _ended(self, fetch: Fetch[K]) -> None:
        open_one = self._fetching.get(fetch.node)
        if open_one is not None and open_one.fetch is fetch:
            del self._fetching[fetch.node]
        else:
            self._overtaken.discard(fetch.node)

    def _ask(self, key: K) -> Asked:
        track = self.tracks[key]
        track.asked = True
        at = track.offset
        if at is None:
            at = track.start.timestamp
        elif not track.is_found:
            assert track.stop is not None
            at = track.stop.timestamp
        return Asked(at, track.leader_epoch, track.version)

    def _is_fetchable(self, key: K) -> bool:
        track = self.tracks[key]
        return track.is_found and not track.is_done and not track.asked

    def _share(self) -> int:
        """Byte limit of one Fetch, so that one per leader and one being read fit in the buffer."""
        leaders = {track.leader for track in self.tracks.values() if not track.is_done}
        return max(1, min(FETCH_BYTES, self.prefetch // (len(leaders) + 1)))

    def _has_room(self, buffered: int, share: int, node: int) -> bool:
        used = buffered + sum(
            one.fetch.max_bytes for other, one in self._fetching.items() if other != node
        )
        return used == 0 or used + share <= self.prefetch

    def _answered(self, key: K, asked: Asked) -> Track | None:
        """The track that a part of an answer is for, unless it is no longer wanted."""
        track = self.tracks.get(key)
        if track is None or track.version != asked.version:
            return None
        track.asked = False
        return track

    def _trouble(
        self, track: Track, error: ClientError, now: float, began: float | None = None
    ) -> None:
        # A partition that was there and is not is the business of the next metadata answer.
        stale = forgets(error, 1, repeatable=True)
        self.trouble = error
        track.failures += 1
        if track.failures == 1:
            track.failing_since = now if began is None else began
        if stale is None or now - track.failing_since >= self.patience:
            self.failure = self.failure or error
        elif Stale.METADATA in stale:
            track.leader = NO_LEADER
            self._refresh_at = min(
                self._refresh_at, now + RETRY.delay(track.failures, self.random()) / 2
            )
        track.not_before = now + RETRY.delay(track.failures, self.random())

    def _lost(self, key: K, track: Track) -> None:
        assert track.offset is not None
        if self.on_data_loss == "error":
            self.failure = self.failure or DataLost(self.name(key), track.offset)
            return
        track.start = place_of("on_data_loss", self.on_data_loss)
        track.offset = None

    def add(self, key: K, start: Place, stop: Place | None = None) -> None:
        """Read one more partition, or an old one from another place on."""
        self.tracks[key] = Track(start, stop, version=self._new_version())

    def _new_version(self) -> int:
        self._versions += 1
        return self._versions
