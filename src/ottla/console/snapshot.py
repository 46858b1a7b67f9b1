"""What a cluster answered last, with the age of each answer. Everything that pages show is here.

Rules:

- `Data` is a value (`data`): views are functions of it. The snapshot replaces it as answers come.
- An answer has a `Kind`. It is asked for again when it is older than the kind's age, and only while
  somebody has wanted it within `WATCHED_FOR`. Concurrent askers share one request.
- A refusal becomes a `Missing` in place of the value. An error that passes (a broker is away)
  leaves the last value, which grows older. If no broker at all answers, `Data.away_since_ms` says
  so.
- After an error a kind is not asked for again within `PAUSE`.
- Times are `ottla.clock.Now`: ages are monotonic, so a step of the wall clock changes none.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import (
    REFUSED,
    AuthorizationFailed,
    ClientError,
    KafkaError,
    TopicAuthorizationFailed,
    UnsupportedApi,
)
from ottla.console.capabilities import ONLY_OTTLA
from ottla.console.data import Data, Ends, Stamped
from ottla.console.missing import Missing, missing
from ottla.console.replay import Replay
from ottla.metadata.names import PIPELINES_TOPIC, POINTER_TOPIC
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ottla.client.admin.types import (
        GroupDescription,
        GroupListing,
        NodeDescription,
        ShareGroupDescription,
        ShareGroupOffset,
        ShareWindow,
        TransactionDescription,
    )
    from ottla.clock import Clock
    from ottla.console.data import ClusterAnswer, Committed, LogDir, TopicSettings
    from ottla.console.pipelines import Pipelines
    from ottla.console.tiering import TierAnswer
    from ottla.tables.pointer import Pointer

WATCHED_FOR: Final = 60_000
"""Milliseconds for which a kind is kept fresh after somebody wanted it."""
PAUSE: Final = 1_000
"""Milliseconds between tries of a kind that failed: a cluster that is away gets one a second."""

MOST_READ: Final = 50
"""Records that are read for the exact lag of one group."""
MOST_STAMPS: Final = 10_000
"""Timestamps that are kept: 2 MB."""


class Kind(Enum):
    """A kind of answer, and the seconds after which it is old."""

    CLUSTER = ("cluster", 10)
    NODES = ("nodes", 10)
    GROUPS = ("groups", 10)
    LOG_DIRS = ("log_dirs", 60)
    TRANSACTIONS = ("transactions", 15)
    LETTERS = ("letters", 60)
    TABLES = ("tables", 15)
    PIPELINES = ("pipelines", 5)
    CERTIFICATES = ("certificates", 600)
    SETTINGS = ("settings", 300)

    @property
    def max_age_ms(self) -> int:
        seconds: int = self.value[1]
        return seconds * 1000


WATCHED_KINDS: Final = tuple(kind for kind in Kind if kind is not Kind.SETTINGS)
"""What the overview and the rules are made from."""


class Source(Protocol):
    """Asks a cluster. `clusters.AdminSource` does, over the protocol; tests have others."""

    async def cluster(self) -> ClusterAnswer: ...

    async def nodes(self) -> Sequence[NodeDescription]: ...

    async def groups(self) -> Sequence[GroupListing]: ...

    async def log_dirs(self) -> Sequence[LogDir]: ...

    async def transactions(self) -> Sequence[TransactionDescription]: ...

    async def letters(self) -> Mapping[str, str]: ...

    async def tables(self) -> Mapping[str, Pointer]: ...

    async def pipelines(self) -> Pipelines: ...

    async def certificates(self) -> Mapping[int, float]:
        """When those of brokers end, in seconds since the epoch; of brokers that have one."""
        ...

    async def settings(self) -> Mapping[str, TopicSettings | Missing]: ...

    async def ends(
        self, of: Sequence[TopicPartition], *, starts: bool
    ) -> Mapping[TopicPartition, tuple[int | None, int]]:
        """Start (None unless asked for) and end of those that could be asked."""
        ...

    async def committed(self, groups: Sequence[str]) -> Mapping[str, Committed | ClientError]: ...

    async def members(self, group: str) -> GroupDescription: ...

    async def shares(self, group: str) -> Sequence[ShareGroupOffset]: ...

    async def share_members(self, group: str) -> ShareGroupDescription: ...

    async def windows(self, group: str) -> Sequence[ShareWindow]: ...

    async def stamps(
        self, at: Sequence[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], int]:
        """The timestamps of the first records at or after these offsets, where there are any."""
        ...


NEEDS: Final[Mapping[Kind, str]] = {
    Kind.CLUSTER: "Describe on the topics",
    Kind.NODES: "Describe on the cluster",
    Kind.GROUPS: "Describe on the cluster",
    Kind.LOG_DIRS: "Describe on the cluster",
    Kind.TRANSACTIONS: "Describe on the transactional ids",
    Kind.LETTERS: "DescribeConfigs on the groups",
    Kind.TABLES: f"Read on topic {POINTER_TOPIC!r}",
    Kind.CERTIFICATES: "a connection to each broker",
    Kind.PIPELINES: f"Read on topic {PIPELINES_TOPIC!r}",
    Kind.SETTINGS: "DescribeConfigs on the topics",
}


def is_refusal(error: ClientError) -> bool:
    """Whether asking again will not help: the answer is that there is none."""
    if isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
        return True
    return isinstance(error, (AuthorizationFailed, UnsupportedApi))


class Snapshot:
    """The data of one cluster, kept as fresh as somebody wants it."""

    def __init__(self, name: str, bootstrap: str, source: Source, clock: Clock) -> None:
        self.data = Data(name, bootstrap)
        self.source = source
        self.replay = Replay()
        self._clock = clock
        self._wanted: dict[Kind, int] = {}
        self._under_way: dict[object, asyncio.Future[None]] = {}
        self._not_before: dict[object, int] = {}
        self._doubted: dict[Kind, int] = {}

    # -- kinds -------------------------------------------------------------------------------------

    def want(self, *kinds: Kind) -> None:
        """Keep these fresh for a while."""
        now = self._clock.monotonic_ms()
        for kind in kinds:
            self._wanted[kind] = now

    def is_wanted(self, kind: Kind) -> bool:
        """Whether somebody has asked for it lately."""
        at = self._wanted.get(kind)
        return at is not None and self._clock.monotonic_ms() - at <= WATCHED_FOR

    def is_old(self, kind: Kind) -> bool:
        """Whether it is time to ask again."""
        stamped: Stamped[Any] = getattr(self.data, kind.value[0])
        now = self._clock.monotonic_ms()
        return stamped.at_ms is None or now - stamped.at_ms >= kind.max_age_ms

    async def refresh(self, *kinds: Kind) -> None:
        """Ask for those of the kinds that are old; returns when they have been answered."""
        await asyncio.gather(*(self._ask(kind) for kind in kinds if self.is_old(kind)))

    async def refresh_wanted(self) -> None:
        """Ask for all that is old and wanted."""
        await self.refresh(*(kind for kind in Kind if self.is_wanted(kind)))

    async def _ask(self, kind: Kind) -> None:
        ask: Callable[[], Awaitable[Any]] = getattr(self.source, kind.value[0])

        async def work() -> None:
            if kind is Kind.SETTINGS:
                await self.refresh(Kind.CLUSTER)  # which names the topics
            value = await ask()
            if kind is Kind.CLUSTER:
                self._same_cluster(value)
            self._keep(kind, value)

        await self.shared(kind, work, lambda error: self._keep(kind, missing(error, NEEDS[kind])))

    def _keep(self, kind: Kind, value: object) -> None:
        stamped = Stamped(value, self._clock.monotonic_ms())
        changes: dict[str, Any] = {kind.value[0]: stamped}
        self.data = replace(self.data, **changes)

    def forget(self, kind: Kind) -> None:
        """It was changed just now: ask again when somebody looks next."""
        stamped: Stamped[Any] = getattr(self.data, kind.value[0])
        changes: dict[str, Any] = {kind.value[0]: replace(stamped, at_ms=None)}
        self.data = replace(self.data, **changes)

    def doubt(self, kind: Kind) -> None:
        """Something is not in it that somebody asks for: it may be new, so ask again.

        At most once a second, whatever people ask for.
        """
        now = self._clock.monotonic_ms()
        if now - self._doubted.get(kind, -PAUSE) >= PAUSE:
            self._doubted[kind] = now
            self.forget(kind)

    def forget_group(self, name: str) -> None:
        """A group or queue was changed just now: ask again for its offsets and members."""
        changes: dict[str, Any] = {
            kind: {key: one for key, one in getattr(self.data, kind).items() if key != name}
            for kind in ("committed", "members", "shares", "share_members", "windows")
        }
        self.data = replace(self.data, **changes)

    def _same_cluster(self, found: ClusterAnswer) -> None:
        """Another cluster behind the name: nothing of the old one is shown as the new one's."""
        before = self.data.cluster.value
        if isinstance(before, Missing) or before.id in (None, found.id):
            return
        self.data = Data(self.data.name, self.data.bootstrap, replaced_id=before.id)

    # -- what groups, queues and the sampler ask ---------------------------------------------------

    async def refresh_group(self, group: str, max_age_ms: int = 5_000) -> None:
        """Members and committed offsets of a consumer group."""

        async def work() -> None:
            answers = await self.source.committed([group])
            self.keep_committed(answers)
            self._put("members", group, await self.source.members(group))

        if self._is_older(self.data.members.get(group), max_age_ms):
            await self.shared(
                ("group", group),
                work,
                lambda error: self._put(
                    "members", group, missing(error, f"Describe on group {group!r}")
                ),
            )

    async def refresh_queue(self, group: str, max_age_ms: int = 5_000) -> None:
        """Members, start offsets and lags of a share group."""

        async def work() -> None:
            self._put("shares", group, await self.source.shares(group))
            self._put("share_members", group, await self.source.share_members(group))

        def refused(error: ClientError) -> None:
            reason = missing(error, f"Describe on group {group!r}")
            self._put("shares", group, reason)
            self._put("share_members", group, reason)

        if self._is_older(self.data.share_members.get(group), max_age_ms):
            await self.shared(("queue", group), work, refused)

    async def refresh_windows(self, group: str, max_age_ms: int = 1_000) -> None:
        """Who holds which record of a share group."""

        async def work() -> None:
            found = await self.source.windows(group)
            self._put("windows", group, found)
            self.replay.add(group, found, self._clock.monotonic_ms())

        def refused(error: ClientError) -> None:
            needs = f"Describe on group {group!r}"
            if isinstance(error, TopicAuthorizationFailed):
                needs = "Read on topic '__share_group_state'"
            is_absent = isinstance(error, UnsupportedApi)
            reason = Missing(ONLY_OTTLA) if is_absent else missing(error, needs)
            self._put("windows", group, reason)

        if self._is_older(self.data.windows.get(group), max_age_ms):
            await self.shared(("windows", group), work, refused)

    async def refresh_stamps(self, group: str) -> None:
        """The timestamps of the first records that a group has not taken, for its exact lag."""
        wanted = [one for one in self._next_records(group) if one not in self.data.stamps]

        async def work() -> None:
            found = await self.source.stamps(wanted[:MOST_READ])
            kept = dict(list(self.data.stamps.items())[-MOST_STAMPS:])
            self.data = replace(self.data, stamps={**kept, **found})

        if wanted:
            await self.shared(("stamps", group), work, lambda _: None)

    def _next_records(self, group: str) -> list[tuple[TopicPartition, int]]:
        data = self.data
        committed, shares = data.committed.get(group), data.shares.get(group)
        places: dict[TopicPartition, int] = {}
        if committed is not None and not isinstance(committed.value, Missing):
            places.update(committed.value)
        if shares is not None and not isinstance(shares.value, Missing):
            places.update(
                (TopicPartition(one.topic, one.partition), one.start_offset)
                for one in shares.value
                if one.start_offset is not None
            )
        return [
            (key, first)
            for key, offset in sorted(places.items())
            if (ends := data.ends.get(key)) is not None
            and (first := max(offset, ends.start or 0)) < ends.end
        ]

    def keep_committed(self, answers: Mapping[str, Committed | ClientError]) -> None:
        """Take in the committed offsets of groups, or why they are not told."""
        now = self._clock.monotonic_ms()
        found: dict[str, Stamped[Committed]] = {}
        for group, answer in answers.items():
            if isinstance(answer, ClientError):
                reason = missing(answer, f"Describe on group {group!r}")
                found[group] = Stamped(reason, now)
            else:
                found[group] = Stamped(answer, now)
        self.data = replace(self.data, committed={**self.data.committed, **found})

    def keep_shares(self, group: str, offsets: Sequence[ShareGroupOffset] | Missing) -> None:
        """Take in where a share group is."""
        self._put("shares", group, offsets)

    def keep_ends(self, found: Mapping[TopicPartition, tuple[int | None, int]]) -> None:
        """Take in borders of logs; a start that was not asked for stays as it was."""
        now = self._clock.monotonic_ms()
        ends = dict(self.data.ends)
        for key, (start, end) in found.items():
            before = ends.get(key)
            kept = before.start if start is None and before is not None else start
            ends[key] = Ends(end, now, kept)
        self.data = replace(self.data, ends=ends)

    def forget_gone(self) -> None:
        """Drop what belongs to topics and groups that do not exist any more."""
        data = self.data
        topics = data.topics
        if not isinstance(data.cluster.value, Missing):
            ends = {key: one for key, one in data.ends.items() if key.topic in topics}
            data = replace(data, ends=ends)
        listed = data.groups.value
        if not isinstance(listed, Missing):
            names = {one.id for one in listed}
            data = replace(
                data,
                committed={key: one for key, one in data.committed.items() if key in names},
                members={key: one for key, one in data.members.items() if key in names},
                shares={key: one for key, one in data.shares.items() if key in names},
                share_members={key: one for key, one in data.share_members.items() if key in names},
                windows={key: one for key, one in data.windows.items() if key in names},
            )
        self.data = data

    def _put(self, name: str, key: str, value: object) -> None:
        stamped = Stamped(value, self._clock.monotonic_ms())
        changes: dict[str, Any] = {name: {**getattr(self.data, name), key: stamped}}
        self.data = replace(self.data, **changes)

    def _is_older(self, stamped: Stamped[Any] | None, max_age_ms: int) -> bool:
        if stamped is None or stamped.at_ms is None:
            return True
        return self._clock.monotonic_ms() - stamped.at_ms >= max_age_ms

    # -- asking ------------------------------------------------------------------------------------

    async def shared(
        self,
        key: object,
        work: Callable[[], Awaitable[None]],
        refused: Callable[[ClientError], None],
    ) -> None:
        """Do the work, or wait for whoever does it already. Errors end here."""
        under_way = self._under_way.get(key)
        if under_way is None:
            if self._clock.monotonic_ms() < self._not_before.get(key, 0):
                return
            under_way = asyncio.ensure_future(self._do(key, work, refused))
            self._under_way[key] = under_way
            under_way.add_done_callback(lambda _: self._under_way.pop(key, None))
        await asyncio.shield(under_way)

    async def _do(
        self,
        key: object,
        work: Callable[[], Awaitable[None]],
        refused: Callable[[ClientError], None],
    ) -> None:
        try:
            await work()
        except ClientError as error:
            now = self._clock.monotonic_ms()
            self._not_before[key] = now + PAUSE
            if is_refusal(error):
                refused(error)
                self._answered()
            elif key is Kind.CLUSTER and not isinstance(error, KafkaError):
                self._away(error, now)
        else:
            self._not_before.pop(key, None)
            self._answered()

    def _away(self, error: ClientError, now: int) -> None:
        since = self.data.away_since_ms
        reason = str(missing(error, ""))
        if isinstance(error, REFUSED):
            reason = f"refused: {reason}"
        self.data = replace(
            self.data, away_since_ms=now if since is None else since, away_reason=reason
        )

    def _answered(self) -> None:
        if self.data.away_since_ms is not None:
            self.data = replace(self.data, away_since_ms=None, away_reason="")

    def keep_tier(self, answer: TierAnswer | Missing) -> None:
        """Take in the catalogue of the tier, or why it is not told."""
        self.data = replace(self.data, tier=Stamped(answer, self._clock.monotonic_ms()))

    def note_registry(self) -> None:
        """A schema registry was found."""
        self.data = replace(self.data, has_registry=True)

    async def close(self) -> None:
        """End what is under way."""
        pending = list(self._under_way.values())
        for one in pending:
            one.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
