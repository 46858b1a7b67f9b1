"""Samples of a cluster: ends of logs, committed offsets, queues; rates and lags for the history.

A tick asks within a budget (`budget`): first for what somebody looks at, then for partitions of
groups with members, then for the rest in turn. The time that its requests take sets the next
budget.
Rates are differences of offsets between two samples of the same partition, so a partition that is
seen for the first time, or was recreated, adds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.client.admin.types import NodeState
from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.client.errors import ClientError, KafkaError
from ottla.console.attention import SETTLED_STATES
from ottla.console.budget import START, TICK_S, Budget, choose
from ottla.console.lag import EndSamples, worst
from ottla.console.look import Look
from ottla.console.missing import Missing, missing
from ottla.console.snapshot import WATCHED_FOR, Kind, is_refusal
from ottla.metadata.names import PIPELINES_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ottla.client.admin.types import ShareGroupOffset
    from ottla.clock import Clock
    from ottla.console.history import History
    from ottla.console.lag import Behind
    from ottla.console.snapshot import Snapshot

STARTS_EVERY: Final = 6
"""Ticks: the start of a log moves by retention, which runs every five minutes."""
MOST_SAMPLED: Final = 20_000
"""Partitions whose ends are remembered for lags in seconds: 6 KB each if they never rest."""

Rates: TypeAlias = "dict[tuple[str | None, TopicPartition], tuple[int, int, float | None]]"


class Sampler:
    """Of one cluster."""

    def __init__(
        self, snapshot: Snapshot, history: History, clock: Clock, tick_s: float = TICK_S
    ) -> None:
        self.snapshot = snapshot
        self.history = history
        self.samples: dict[TopicPartition, EndSamples] = {}
        self.budget = Budget()
        self.spent_s = 0.0
        """What the requests of the last tick took."""
        self._clock = clock
        self._tick_s = tick_s
        self._ticks = 0
        self._partition_cursors = START
        self._group_cursors = START
        self._watched: dict[TopicPartition | str, int] = {}
        self._offsets: Rates = {}
        """The last offset, its time and rate: of log ends (None) and of groups (by name)."""

    def watch(self, things: Iterable[TopicPartition | str]) -> None:
        """Sample these partitions, and groups by name, before others for a while."""
        now = self._clock.monotonic_ms()
        for one in things:
            self._watched[one] = now

    def look(self) -> Look:
        """This moment."""
        return Look(self.snapshot.data, self.history, self._clock.now(), self.samples)

    async def tick(self) -> None:
        """One round of samples; errors end in the snapshot."""
        snapshot = self.snapshot
        await snapshot.refresh(Kind.CLUSTER, Kind.GROUPS)
        await snapshot.refresh_wanted()
        if PIPELINES_TOPIC in snapshot.data.topics:
            await snapshot.refresh(Kind.PIPELINES)
        if snapshot.data.away_since_ms is not None:
            return  # each question would wait for its time to be over
        snapshot.forget_gone()
        now = self._clock.monotonic_ms()
        self._watched = {key: at for key, at in self._watched.items() if now - at <= WATCHED_FOR}
        self._forget_gone()
        partitions, groups, queues = self._plan()
        started = self._clock.monotonic()
        ends = await self._ask_ends(partitions)
        await self._ask_committed(groups)
        await self._ask_queues(queues)
        self.spent_s = self._clock.monotonic() - started
        self.budget = self.budget.after(self.spent_s, self._tick_s)
        self._ticks += 1
        self._record(ends, groups, queues)

    # -- what to ask -------------------------------------------------------------------------------

    def _plan(self) -> tuple[list[TopicPartition], list[str], list[str]]:
        data = self.snapshot.data
        listed = data.groups.value
        groups = [] if isinstance(listed, Missing) else list(listed)
        types = {one.id: one.type for one in groups}
        busy = [one.id for one in groups if one.state != "Empty"]
        chosen, self._group_cursors = choose(
            [one for one in self._watched if isinstance(one, str) and one in types],
            busy,
            [one.id for one in groups],
            self._group_cursors,
            self.budget.groups,
        )
        led = {
            TopicPartition(name, one.index)
            for name, topic in data.topics.items()
            for one in topic.partitions
            if one.leader != NO_LEADER
        }
        watched = [one for one in self._watched if isinstance(one, TopicPartition) and one in led]
        read = [key for key in self._read_by(busy) if key in led]
        partitions, self._partition_cursors = choose(
            watched,
            read,
            sorted(self._written(led)),
            self._partition_cursors,
            self.budget.partitions,
        )
        return (
            partitions,
            [name for name in chosen if types[name] != "share"],
            [name for name in chosen if types[name] == "share"],
        )

    def _read_by(self, groups: Iterable[str]) -> list[TopicPartition]:
        data = self.snapshot.data
        found: dict[TopicPartition, None] = {}
        for name in groups:
            committed, shares = data.committed.get(name), data.shares.get(name)
            if committed is not None and not isinstance(committed.value, Missing):
                found.update(dict.fromkeys(committed.value))
            if shares is not None and not isinstance(shares.value, Missing):
                found.update(
                    dict.fromkeys(TopicPartition(one.topic, one.partition) for one in shares.value)
                )
        return list(found)

    def _written(self, led: set[TopicPartition]) -> set[TopicPartition]:
        """Those that have bytes, where that is known: asking for others tells nothing."""
        directories = self.snapshot.data.log_dirs.value
        if isinstance(directories, Missing):
            return led
        return {
            key for one in directories for key, size in one.sizes.items() if size and key in led
        }

    # -- asking ------------------------------------------------------------------------------------

    async def _ask_ends(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int | None, int]]:
        known = self.snapshot.data.ends
        is_turn = self._ticks % STARTS_EVERY == 0
        whole = [
            key for key in partitions if is_turn or key not in known or known[key].start is None
        ]
        wanted = set(whole)
        rest = [key for key in partitions if key not in wanted]
        found: dict[TopicPartition, tuple[int | None, int]] = {}

        async def work() -> None:
            for some, starts in ((whole, True), (rest, False)):
                if some:
                    found.update(await self.snapshot.source.ends(some, starts=starts))
            self.snapshot.keep_ends(found)

        await self.snapshot.shared("ends", work, lambda _: None)
        return found

    async def _ask_committed(self, groups: Sequence[str]) -> None:
        async def work() -> None:
            self.snapshot.keep_committed(await self.snapshot.source.committed(groups))

        if groups:
            await self.snapshot.shared("committed", work, lambda _: None)

    async def _ask_queues(self, queues: Sequence[str]) -> None:
        async def ask(group: str) -> None:
            try:
                offsets: Sequence[ShareGroupOffset] | Missing = await self.snapshot.source.shares(
                    group
                )
            except ClientError as error:
                if is_refusal(error):
                    offsets = missing(error, f"Describe on group {group!r}")
                elif isinstance(error, KafkaError):
                    return  # such as a group that was deleted just now
                else:
                    raise
            self.snapshot.keep_shares(group, offsets)

        async def work() -> None:
            # One after the other: one of our requests at a time beside those of pages.
            for group in queues:
                await ask(group)

        if queues:
            await self.snapshot.shared("shares", work, lambda _: None)

    # -- what it tells -----------------------------------------------------------------------------

    def _record(
        self,
        ends: Mapping[TopicPartition, tuple[int | None, int]],
        groups: Sequence[str],
        queues: Sequence[str],
    ) -> None:
        now = self._clock.monotonic_ms()
        for key, (_, end) in ends.items():
            if key not in self.samples and len(self.samples) >= MOST_SAMPLED:
                continue
            self.samples.setdefault(key, EndSamples()).add(now, end)
            self._moved(None, key, end, now)
        self._record_topics({key.topic for key in ends}, now)
        look = self.look()
        for name in groups:
            self._record_group(look, name, now)
        for name in queues:
            self._record_queue(look, name, now)
        self._record_states(now)
        self._record_flows(now)
        self._record_cluster(now)

    def _moved(self, who: str | None, key: TopicPartition, offset: int, now: int) -> None:
        before = self._offsets.get((who, key))
        if before is None or offset < before[0]:
            self._offsets[who, key] = (offset, now, None)
        elif now > before[1]:
            rate = (offset - before[0]) * 1000 / (now - before[1])
            self._offsets[who, key] = (offset, now, rate)

    def _record_topics(self, topics: Iterable[str], now: int) -> None:
        for topic in topics:
            rates = [
                kept[2]
                for key in self.snapshot.data.partitions(topic)
                if (kept := self._offsets.get((None, key))) is not None and kept[2] is not None
            ]
            if rates:
                self.history.add(("topic", topic, "records_per_s"), sum(rates), now)

    def _record_group(self, look: Look, name: str, now: int) -> None:
        stamped = look.data.committed.get(name)
        if stamped is None or isinstance(stamped.value, Missing):
            return
        by_topic: dict[str, list[Behind]] = {}
        for key, offset in stamped.value.items():
            self._moved(name, key, offset, now)
            behind = look.behind(key, offset)
            if behind is not None:
                by_topic.setdefault(key.topic, []).append(behind)
        self._record_lag("group", name, {key: worst(some) for key, some in by_topic.items()}, now)
        self._record_taken("group", name, stamped.value, now)

    def _record_taken(self, kind: str, name: str, keys: Iterable[TopicPartition], now: int) -> None:
        kept = [self._offsets.get((name, key)) for key in keys]
        rates = [one[2] for one in kept if one is not None and one[2] is not None]
        if rates:
            self.history.add((kind, name, "taken_per_s"), sum(rates), now)

    def _record_queue(self, look: Look, name: str, now: int) -> None:
        stamped = look.data.shares.get(name)
        if stamped is None or isinstance(stamped.value, Missing):
            return
        held = 0
        for one in stamped.value:
            held += one.in_flight or 0
            if one.start_offset is not None:
                key = TopicPartition(one.topic, one.partition)
                self._moved(name, key, one.start_offset + (one.delivered or 0), now)
        topics = {one.topic for one in stamped.value}
        found = {topic: look.queue_behind(name, topic) for topic in topics}
        lags = {
            topic: one
            for topic, one in found.items()
            if one is not None and not isinstance(one, Missing)
        }
        self._record_lag("queue", name, lags, now)
        self.history.add(("queue", name, "in_flight"), held, now)

    def _record_lag(self, kind: str, name: str, lags: Mapping[str, Behind], now: int) -> None:
        for topic, one in lags.items():
            self.history.add((kind, name, topic, "lag"), one.records, now)
            if one.seconds is not None:
                self.history.add((kind, name, topic, "lag_s"), one.seconds, now)
        if lags:
            total = worst(list(lags.values()))
            self.history.add((kind, name, "lag"), total.records, now)
            if total.seconds is not None:
                self.history.add((kind, name, "lag_s"), total.seconds, now)

    def _record_states(self, now: int) -> None:
        data = self.snapshot.data
        listed = data.groups.value
        if not isinstance(listed, Missing):
            for group in listed:
                kind = "queue" if group.type == "share" else "group"
                has_members = float(group.state != "Empty")
                self.history.add((kind, group.id, "has_members"), has_members, now)
                unstable = float(group.state not in SETTLED_STATES)
                self.history.add((kind, group.id, "unstable"), unstable, now)
        nodes = data.nodes.value
        if not isinstance(nodes, Missing):
            for node in nodes:
                away = float(node.state is not NodeState.ACTIVE)
                self.history.add(("node", str(node.broker.id), "away"), away, now)
        directories = data.log_dirs.value
        if not isinstance(directories, Missing) and data.log_dirs.at_ms is not None:
            for one in directories:
                if one.free_bytes is not None and one.total_bytes is not None:
                    used = one.total_bytes - one.free_bytes
                    name = ("node", str(one.broker), "disk_bytes_per_s")
                    self.history.add_counter(name, used, data.log_dirs.at_ms)

    def _record_flows(self, now: int) -> None:
        told = self.snapshot.data.pipelines.value
        if isinstance(told, Missing):
            return
        for (pipeline, name), flow in told.flows.items():
            if flow.batch is not None:
                runs = flow.state == "running"
                rate = flow.batch.processed_per_s if runs else 0.0
                self.history.add(("flow", pipeline, name, "rows_per_s"), rate, now)
                self.history.add(("flow", pipeline, name, "batch_ms"), flow.batch.total_ms, now)

    def _record_cluster(self, now: int) -> None:
        internal = {one.name for one in self.snapshot.data.topics.values() if one.is_internal}
        come = taken = 0.0
        knows_in = knows_taken = False
        for (who, key), (_, _, rate) in self._offsets.items():
            if rate is None or key.topic in internal:
                continue
            if who is not None:
                taken, knows_taken = taken + rate, True
            else:
                come, knows_in = come + rate, True
        if knows_in:
            self.history.add(("cluster", "in_per_s"), come, now)
        if knows_taken:
            self.history.add(("cluster", "taken_per_s"), taken, now)

    def _forget_gone(self) -> None:
        data = self.snapshot.data
        if isinstance(data.cluster.value, Missing) or isinstance(data.groups.value, Missing):
            return
        topics, groups = data.topics, {one.id for one in data.groups.value}
        told = data.pipelines.value
        flows = set() if isinstance(told, Missing) else set(told.flows)
        for key in [key for key in self.samples if key.topic not in topics]:
            del self.samples[key]
        self._offsets = {
            (who, key): kept
            for (who, key), kept in self._offsets.items()
            if key.topic in topics and (who is None or who in groups)
        }
        self.history.forget(
            name
            for name in list(self.history.names())
            if (name[0] == "topic" and name[1] not in topics)
            or (name[0] in ("group", "queue") and name[1] not in groups)
            or (name[0] == "flow" and (name[1], name[2]) not in flows)
        )
