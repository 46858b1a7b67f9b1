"""The clusters that are looked at: a client each, asked through its snapshot and sampler."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.client.admin.base import by_topic
from ottla.client.admin.log_dirs import LogDirCalls
from ottla.client.admin.nodes import NodeCalls
from ottla.client.admin.share import ShareGroupCalls
from ottla.client.admin.transactions import TransactionCalls
from ottla.client.cluster.cluster import Client
from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.client.errors import ClientError, UnsupportedApi, check
from ottla.client.security import PLAINTEXT, Security
from ottla.clock import SYSTEM, Clock
from ottla.console.attention import Attention, attention
from ottla.console.browse import Browser, fetch_one
from ottla.console.budget import TICK_S
from ottla.console.data import ClusterAnswer, LogDir, TopicSettings
from ottla.console.findings import DEFAULTS, Thresholds
from ottla.console.history import History
from ottla.console.letters import letters_topic
from ottla.console.missing import Missing, missing
from ottla.console.paging import READ_AT_ONCE
from ottla.console.pipelines import Fold
from ottla.console.query import Query
from ottla.console.sampler import Sampler
from ottla.console.snapshot import Kind, Snapshot
from ottla.console.window_state import (
    MOST_BYTES,
    MOST_GROUPS,
    MOST_SECONDS,
    STATE_TOPIC,
    GroupState,
    fold,
    window,
)
from ottla.coordination.share_state.records import ShareKey
from ottla.metadata.names import PIPELINES_TOPIC, POINTER_TOPIC
from ottla.tables.errors import BadPointer
from ottla.tables.pointer import Pointer, decode_pointer
from ottla.wire.errors import WireError
from ottla.wire.records import iter_records
from ottla.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.selection import each_batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.admin.types import (
        GroupDescription,
        GroupListing,
        NodeDescription,
        ShareGroupDescription,
        ShareGroupOffset,
        ShareWindow,
        TransactionDescription,
    )
    from ottla.console.data import Committed
    from ottla.console.look import Look
    from ottla.console.pipelines import Pipelines
    from ottla.console.snapshot import Source
    from ottla.wire.spec import Records

API_TIMEOUT: Final = 5.0
"""Seconds: a page waits for no cluster longer than this."""
MOST_HISTORIES: Final = 4
"""Clusters under one name, one after the other, whose histories are kept."""
LOOK_MS: Final = 100
"""A moment: lags of 1,000 groups take 15 ms to work out, and a page asks for them twice."""
ATTENTION_MS: Final = 1_000
"""Rules are applied at most once in this time, however many pages ask."""
MOST_LETTER_GROUPS: Final = 100
"""Share groups whose topic of letters is asked for: each is a request."""
MOST_TRANSACTIONS: Final = 500
"""Open transactions that are described: each is a request to its coordinator."""
MOST_UNPACKED: Final = 16 << 20
"""Bytes of the one batch that is unpacked for a timestamp."""
STATE_FETCH: Final = 256 << 10
"""Bytes of the state topic in one answer: some milliseconds of the loop."""
MOST_SETTINGS: Final = 5_000
"""Topics whose settings are asked for."""
SETTINGS_AT_ONCE: Final = 100
"""In one request: a few milliseconds of the broker."""
SETTINGS: Final = ("cleanup.policy", "retention.ms", "remote.storage.enable")
TOPIC: Final = 2
LATEST: Final = -1
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A cluster and how it is reached."""

    name: str
    bootstrap: str
    security: Security = field(default=PLAINTEXT, repr=False)
    registry: str = ""
    """URL of the schema registry, if the settings name one."""


class Calls(ShareGroupCalls, TransactionCalls, NodeCalls, LogDirCalls):
    """Admin calls over a client that others use, too."""


class AdminSource:
    """Asks a cluster by Kafka's protocol."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls = Calls(client)
        self._states: dict[str, GroupState] = {}
        self._pipelines = Fold()

    async def cluster(self) -> ClusterAnswer:
        view = await self._client.retry(lambda: self._client.refresh(None))
        connection = await self._client.connection_to("any")
        return ClusterAnswer(
            view.cluster_id,
            view.controller_id,
            view.brokers,
            view.topics,
            dict(connection.versions),
            dict(connection.features),
        )

    async def nodes(self) -> Sequence[NodeDescription]:
        return await self._calls.describe_nodes()

    async def groups(self) -> Sequence[GroupListing]:
        return await self._calls.list_groups()

    async def log_dirs(self) -> Sequence[LogDir]:
        return [
            LogDir(one.broker_id, one.path, one.total_bytes, one.usable_bytes, one.sizes, one.error)
            for one in await self._calls.describe_log_dirs()
        ]

    async def transactions(self) -> Sequence[TransactionDescription]:
        listed = await self._calls.list_transactions()
        ids = [one.transactional_id for one in listed[:MOST_TRANSACTIONS]]
        return await self._calls.describe_transactions(ids)

    async def letters(self) -> Mapping[str, str]:
        listed = await self._calls.list_groups(types=["share"])
        groups = [one.id for one in listed[:MOST_LETTER_GROUPS]]
        found = {}
        for group in groups:  # one after the other: it is asked once a minute
            topic = await letters_topic(self._client, group)
            if not isinstance(topic, Missing):
                found[group] = topic
        return found

    async def tables(self) -> Mapping[str, Pointer]:
        if POINTER_TOPIC not in (await self._client.refresh([POINTER_TOPIC])).topics:
            return {}
        browser = Browser(self._client, SYSTEM)
        bounds = await browser.bounds(Query(POINTER_TOPIC))
        starts = {number: one.start for number, one in bounds.items()}
        stops = {number: one.end for number, one in bounds.items()}
        found: dict[str, Pointer] = {}
        async with browser.reader(POINTER_TOPIC, "read_committed", starts, stops) as reader:
            while records := await reader.read_many(READ_AT_ONCE):
                for record in records:
                    topic = (record.key or b"").decode(errors="replace")
                    found.pop(topic, None)
                    with suppress(BadPointer):  # a newer version's, which this one cannot read
                        if record.value is not None:
                            found[topic] = decode_pointer(topic, record.value)
        return found

    async def pipelines(self) -> Pipelines:
        topic = (await self._client.refresh([PIPELINES_TOPIC])).topics.get(PIPELINES_TOPIC)
        if topic is None:
            self._pipelines = Fold()
            return self._pipelines.value()
        browser, fold = Browser(self._client, SYSTEM), self._pipelines
        bounds = await browser.bounds(Query(PIPELINES_TOPIC))
        whole = {number: (one.start, one.end) for number, one in bounds.items()}
        starts, stops = fold.plan(topic.id, whole)
        try:
            if starts:
                await self._read_pipelines(browser, starts, stops)
        except BaseException:
            fold.failed()
            raise
        return fold.value()

    async def _read_pipelines(
        self, browser: Browser, starts: dict[int, int], stops: dict[int, int]
    ) -> None:
        some = list(starts)
        async with browser.reader(PIPELINES_TOPIC, "read_committed", starts, stops, some) as reader:
            while records := await reader.read_many(READ_AT_ONCE):
                for record in records:
                    self._pipelines.add(record.key, record.value)

    async def settings(self) -> Mapping[str, TopicSettings | Missing]:
        names = list(self._client.view.topics)[:MOST_SETTINGS]
        found: dict[str, TopicSettings | Missing] = {}
        for first in range(0, len(names), SETTINGS_AT_ONCE):
            some = names[first : first + SETTINGS_AT_ONCE]
            request = DescribeConfigsRequest(
                [DescribeConfigsResource(TOPIC, name, list(SETTINGS)) for name in some]
            )
            answer: DescribeConfigsResponse = await self._client.send(request, to="any")
            for one in answer.results:
                try:
                    check(one.error_code, "describe topics", one.error_message)
                except ClientError as error:
                    needs = f"DescribeConfigs on topic {one.resource_name!r}"
                    found[one.resource_name] = missing(error, needs)
                else:
                    values = {entry.name: entry.value for entry in one.configs}
                    found[one.resource_name] = topic_settings(values)
        return found

    async def certificates(self) -> Mapping[int, float]:
        if (await self._client.connection_to("any")).certificate_until is None:
            return {}
        found = {}
        for number in self._client.view.brokers:
            with suppress(ClientError):  # a node that is down does not hide the others
                until = (await self._client.connection_to(number)).certificate_until
                if until is not None:
                    found[number] = until
        return found

    async def ends(
        self, of: Sequence[TopicPartition], *, starts: bool
    ) -> Mapping[TopicPartition, tuple[int | None, int]]:
        leaders: dict[int, list[TopicPartition]] = {}
        topics = self._client.view.topics
        for key in of:
            topic = topics.get(key.topic)
            leader = NO_LEADER if topic is None else topic.leader_of(key.partition)
            if leader != NO_LEADER:
                leaders.setdefault(leader, []).append(key)
        answers = await asyncio.gather(
            *(self._ends_of(leader, some, starts=starts) for leader, some in leaders.items()),
            return_exceptions=True,
        )
        failed = [one for one in answers if isinstance(one, BaseException)]
        # A node that is down does not hide what the others tell.
        for error in failed:
            if len(failed) == len(answers) or not isinstance(error, ClientError):
                raise error
        found = [one for one in answers if not isinstance(one, BaseException)]
        return {key: one[key] for one in found for key in one}

    async def _ends_of(
        self, leader: int, of: Sequence[TopicPartition], *, starts: bool
    ) -> dict[TopicPartition, tuple[int | None, int]]:
        ends = await self._offsets(leader, of, LATEST)
        begins = await self._offsets(leader, of, EARLIEST) if starts else {}
        return {key: (begins.get(key), end) for key, end in ends.items()}

    async def _offsets(
        self, leader: int, of: Sequence[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        """Of those that the leader can tell: one that moves is asked for again at the next tick."""
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(topic, [ListOffsetsPartition(number, -1, at) for number in some])
                for topic, some in by_topic(of).items()
            ],
            timeout_ms=int(self._client.request_timeout * 1000),
        )
        answer: ListOffsetsResponse = await self._client.send(request, to=leader, min_version=1)
        return {
            TopicPartition(topic.name, one.partition_index): one.offset
            for topic in answer.topics
            for one in topic.partitions
            if not one.error_code
        }

    async def committed(self, groups: Sequence[str]) -> Mapping[str, Committed | ClientError]:
        return await self._calls.list_group_offsets_of(groups, return_errors=True)

    async def members(self, group: str) -> GroupDescription:
        [found] = await self._calls.describe_groups([group])
        return found

    async def shares(self, group: str) -> Sequence[ShareGroupOffset]:
        return await self._calls.list_share_group_offsets(group)

    async def share_members(self, group: str) -> ShareGroupDescription:
        [found] = await self._calls.describe_share_groups([group])
        return found

    async def windows(self, group: str) -> Sequence[ShareWindow]:
        try:
            return await self._calls.describe_share_windows(group)
        except UnsupportedApi:
            return await self._stored_windows(group)

    async def _stored_windows(self, group: str) -> Sequence[ShareWindow]:
        """What `__share_group_state` tells, where the brokers tell no more."""
        topics = self._client.view.topics
        if STATE_TOPIC not in topics:
            raise UnsupportedApi("the state of share groups cannot be read")
        partitions = len(topics[STATE_TOPIC].partitions)
        keys = {
            ShareKey(group, UUID(bytes=topics[one.topic].id), one.partition): TopicPartition(
                one.topic, one.partition
            )
            for one in await self._calls.list_share_group_offsets(group)
            if one.topic in topics and one.start_offset is not None
        }
        state = self._states.pop(group, None) or GroupState(group)
        self._states[group] = state
        while len(self._states) > MOST_GROUPS:
            del self._states[next(iter(self._states))]
        cut = set()
        for number in sorted({key.state_partition(partitions) for key in keys}):
            if not await self._read_state(state, number):
                cut.add(number)
        ends = await self.ends(list(keys.values()), starts=False)
        found = [
            window(
                place,
                state.stored[key],
                ends[place][1],
                is_cut=key.state_partition(partitions) in cut,
            )
            for key, place in sorted(keys.items(), key=lambda item: item[1])
            if key in state.stored and place in ends
        ]
        return [one for one in found if one is not None]

    async def _read_state(self, state: GroupState, number: int) -> bool:
        """Read on in a partition of the state topic; False if its end was not reached."""
        place = TopicPartition(STATE_TOPIC, number)
        start, end = (await self.ends([place], starts=True)).get(place, (0, 0))
        at, left = max(start or 0, state.read_to.get(number, 0)), MOST_BYTES
        clock = asyncio.get_running_loop().time
        until = clock() + MOST_SECONDS
        while at < end:
            if left <= 0 or clock() > until:
                return False
            row = await fetch_one(self._client, place, at, STATE_FETCH)
            check(row.error_code, f"read {place}")
            batches = list(each_batch(row.records or b"", partial_tail=True))
            if not batches:
                break
            for batch in batches:
                left -= batch.size
                if not batch.is_control:
                    records = iter_records(batch, limit=MOST_UNPACKED)
                    with suppress(WireError):  # a damaged batch hides its own records only
                        fold(state, ((one.key, one.value) for one in records))
            at = state.read_to[number] = batches[-1].next_offset
        return True

    async def stamps(
        self, at: Sequence[tuple[TopicPartition, int]]
    ) -> Mapping[tuple[TopicPartition, int], int]:
        found = {}
        for key, offset in at:  # one after the other: each answer holds a batch
            stamp = await self._stamp(key, offset)
            if stamp is not None:
                found[key, offset] = stamp
        return found

    async def _stamp(self, key: TopicPartition, offset: int) -> int | None:
        row = await fetch_one(self._client, key, offset, 1)
        if row.error_code or not row.records:
            return None
        return first_timestamp(row.records, offset)


def topic_settings(values: Mapping[str, str | None]) -> TopicSettings:
    """What the list shows of a topic's settings; brokers before 3.6 know no tier."""
    cleanup, retention, tier = (values.get(name) for name in SETTINGS)
    return TopicSettings(cleanup or "delete", int(retention or -1), tier == "true")


def first_timestamp(fetched: Records, offset: int) -> int | None:
    """The timestamp of the first record at or after the offset; None if there is none."""
    try:
        for batch in each_batch(fetched, partial_tail=True):
            if batch.last_offset < offset or batch.is_control:
                continue
            for record in iter_records(batch, limit=MOST_UNPACKED):
                if record.offset >= offset:
                    return record.timestamp
    except WireError:
        return None
    return None


class Cluster:
    """One cluster that is looked at: `look` and `attention` are what views are made from."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        tick_s: float = TICK_S,
        thresholds: Thresholds = DEFAULTS,
        clock: Clock = SYSTEM,
        source: Source | None = None,
    ) -> None:
        self.settings = settings
        self.client: Client | None = None
        if source is None:
            self.client = Client(
                settings.bootstrap,
                client_id="ottla-console",
                security=settings.security,
                api_timeout=API_TIMEOUT,
            )
            source = AdminSource(self.client)
        self.snapshot = Snapshot(settings.name, settings.bootstrap, source, clock)
        self._histories: dict[str | None, History] = {}
        self._thresholds = thresholds
        self._clock = clock
        self._tick_s = tick_s
        self._id: str | None = None
        self.sampler = self._sampler(None)
        self._look: Look | None = None
        self._attention: tuple[int, Attention] | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def cluster_id(self) -> str | None:
        """Whose history is kept at the moment; None until the cluster has told it."""
        return self._id

    @property
    def history(self) -> History:
        return self.sampler.history

    def look(self) -> Look:
        """This moment. Whoever asks in the same one shares what was worked out for it."""
        before, now = self._look, self._clock.now()
        if (
            before is None
            or before.data is not self.snapshot.data
            or before.history is not self.history
            or now.ms - before.now.ms >= LOOK_MS
            or not 0 <= now.wall_ms - before.now.wall_ms < LOOK_MS
        ):
            self._look = before = self.sampler.look()
        return before

    def attention(self) -> Attention:
        """What needs attention, at most a second old."""
        now = self._clock.monotonic_ms()
        if self._attention is None or now - self._attention[0] >= ATTENTION_MS:
            self._attention = now, attention(self.look(), self._thresholds)
        return self._attention[1]

    async def tick(self) -> None:
        """One round of samples. Another cluster under this name gets a history of its own."""
        await self.snapshot.refresh(Kind.CLUSTER)
        found = self.snapshot.data.cluster.value
        if not isinstance(found, Missing) and found.id != self._id:
            if self._id is None:
                self._histories[found.id] = self._histories.pop(None)
            else:
                self.sampler = self._sampler(found.id)
            self._id = found.id
        await self.sampler.tick()

    async def close(self) -> None:
        """Close the connections."""
        await self.snapshot.close()
        if self.client is not None:
            await self.client.close()

    def _sampler(self, cluster_id: str | None) -> Sampler:
        history = self._histories.pop(cluster_id, None) or History()
        self._histories[cluster_id] = history
        while len(self._histories) > MOST_HISTORIES:
            del self._histories[next(iter(self._histories))]
        return Sampler(self.snapshot, history, self._clock, self._tick_s)
