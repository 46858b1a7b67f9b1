"""The log of topics as a source: offsets of partitions, read by plain fetches.

Rules:

- A gap in the offsets is not data loss: compaction and the markers of transactions leave gaps. Data
  loss is a log that begins after our position, a log that ends before it and stays so, and a
  deleted or recreated topic. It is an error or, without `failOnDataLoss`, a warning.
- Ends are listed once per batch. While nothing is new, one waiting fetch per leader replaces that.
- New partitions are read from their beginning.
- Modules that read segments are imported on first use: most queries do not need them.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ottla.client.cluster.view import TopicPartition
from ottla.objects.errors import RemoteStorageError
from ottla.spark.backend import Backend, Bounds, Limit, Offset, Task
from ottla.spark.background import background
from ottla.spark.cluster import Cluster, missing_topics
from ottla.spark.errors import BadOption, DataLoss
from ottla.spark.log.hooks import settled_hook
from ottla.spark.log.mirror import Mirror
from ottla.spark.log.offset_stores import open_store, store_offsets, stored
from ottla.spark.log.planning import Range, plan
from ottla.spark.log.record_sizes import RecordSizes
from ottla.spark.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtTime,
    Given,
    Offsets,
    OfGroup,
    OfStore,
    Pace,
    Where,
    assigned,
    backlog,
    batch_start,
    capped,
    first_end,
    from_json,
    limited,
    limited_bytes,
    to_json,
)
from ottla.spark.options import LOG, SourceOptions
from ottla.wire.spec import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ottla.client.cluster.view import Topic
    from ottla.offsets.protocol import SyncOffsetStore
    from ottla.spark.log.directory import LogDirectory
    from ottla.spark.tables.planning import FilePart, TablePlanner
    from ottla.spark.tier.cluster import TierCluster
    from ottla.spark.tier.planning import Covered, Piece, TierPlanner


class LogBackend(Backend):
    """Creating one does no I/O: workers create one only to read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connected: Cluster | TierCluster | LogDirectory | None = None
        self._tier: TierPlanner | None = None
        self._tables: TablePlanner | None = None
        self._mirrors: list[Mirror] | None = None
        self._opened: SyncOffsetStore | None = None
        self._sizes: RecordSizes | None = None
        self._ids: dict[str, bytes] = {}
        self._topics: Mapping[str, Topic] = {}
        self._topics_at = -float("inf")
        self._latest: Offsets = {}
        self._is_quiet = False
        self._waited_for: Offset | None = None
        self._initial: Offset | None = None
        self._target: Offsets | None = None
        self._pace = Pace(options.min_offsets or 0, options.max_delay)

    # Called by the driver.

    def bounds(self) -> Bounds:
        options = self._options
        places = self._partitions(must_exist=True)
        first = self._resolved(options.start, places, options.start_option)
        if options.table is not None and options.start == AtEnd(EARLIEST):
            first = self._table_planner.begin(first, self._ids)
        self._latest = self._cluster.offsets(dict.fromkeys(places, LATEST))
        last = self._latest
        if options.mode == "batch":
            last = self._resolved(options.end, places, options.end_option)
        self._initial = to_json(first)
        return Bounds(self._initial, to_json(last))

    def advance(self, start: Offset, limit: Limit) -> Offset:
        end = self._advance(start, limit)
        # This may be the last call: when the query ends, Spark kills this process at once. With
        # Trigger.Once it always is, and only the previous run's position can be saved.
        # Wait for a position only once: a store that is down must not slow an idle query.
        may_be_last = self._target is not None or end == start or self._waited_for is None
        if may_be_last and self._waited_for != start:
            for mirror in self._mirrors or ():
                mirror.flush()
            self._waited_for = start
        return end

    def _advance(self, start: Offset, limit: Limit) -> Offset:
        begin = from_json(start)
        latest = self._ends(begin)
        if latest == begin and self._options.long_poll and self._target is None:
            self._is_quiet = not self._cluster.wait_for_more(latest, self._options.long_poll)
            latest = self._ends(begin)
        latest = capped(latest, self._target)
        if self._target is not None:
            # Records written after the query started are left to the next one.
            latest = {**{place: begin[place] for place in begin if place in self._latest}, **latest}
        if latest == begin:
            return start
        waiting = backlog(begin, latest)
        if (
            limit.waits
            and self._target is None
            and not self._pace.is_due(waiting, time.monotonic())
        ):
            time.sleep(self._options.long_poll)
            return start
        end = self._limited(begin, latest, limit)
        if end == begin:
            return start
        return first_end(begin, end) if start == self._initial else to_json(end)

    def plan(self, start: Offset, end: Offset) -> Sequence[Task]:
        first = batch_start(start, end)
        last = from_json(end)
        if not self._topics:
            self._refresh()
        known = self._existing()
        gone = sorted(place for place in last if place not in known)
        if gone:
            self._lost_partitions(gone)
        ranges = [
            Range(place.topic, self._ids.get(place.topic), place.partition, begin, last[place])
            for place in sorted(last)
            if place in known and (begin := first.get(place, 0)) < last[place]
        ]
        parts: Sequence[Task] = ()
        if self._options.table is not None:
            parts, ranges = self._archived(ranges)
        if self._options.tier is None:
            return [*parts, *plan(ranges, self._options.split)]
        from ottla.spark.tier.planning import packed

        pieces, rest = self._covered(ranges)
        return [
            *parts,
            *packed(pieces, self._options.split.min_partitions),
            *plan(rest, self._options.split),
        ]

    def freeze(self) -> None:
        self._refresh()
        places = sorted(self._existing())
        self._target = self._cluster.offsets(dict.fromkeys(places, LATEST))

    def latest(self) -> Offset | None:
        return to_json(self._latest) if self._latest else None

    def settle(self, end: Mapping[str, Any]) -> None:
        if self._mirrors is None:
            self._mirrors = self._make_mirrors()
        for mirror in self._mirrors:
            mirror.save(from_json(end))

    def close(self) -> None:
        mirrors, self._mirrors = self._mirrors, None
        for mirror in mirrors or ():
            mirror.close()
        store, self._opened = self._opened, None
        if store is not None:
            store.close()
        cluster, self._connected = self._connected, None
        if cluster is not None:
            cluster.close()

    # Called by workers.

    def read(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from ottla.spark.log.reading import read_ranges

        if not isinstance(task, tuple | list):
            from ottla.spark.tables.reading import read_records

            return read_records(cast("FilePart", task), self._options, columns)
        ranges = cast("Sequence[Range]", task)
        if isinstance(ranges[0], Range):
            return read_ranges(ranges, self._options, columns)
        from ottla.spark.tier.reading import read_pieces

        return read_pieces(cast("Sequence[Piece]", task), self._options, columns)

    # Helpers.

    @property
    def _cluster(self) -> Cluster | TierCluster | LogDirectory:
        if self._connected is None:
            self._connected = self._connect()
        return self._connected

    def _connect(self) -> Cluster | TierCluster | LogDirectory:
        options = self._options
        if options.tier is None or options.tier.mode == "auto":
            return Cluster(options.client)
        if options.tier.mode == "directory":
            from ottla.spark.log.directory import LogDirectory

            return LogDirectory(options.tier)
        from ottla.spark.tier.cluster import TierCluster

        planner = cast("TierPlanner", self._planner)
        return TierCluster(
            planner, options.client.isolation, options.tier.topic_ids, options.metadata_ttl
        )

    @property
    def _planner(self) -> TierPlanner | LogDirectory:
        """The planner that maps ranges to bytes of files."""
        tier = self._options.tier
        assert tier is not None
        if tier.mode == "directory":
            return cast("LogDirectory", self._cluster)
        if self._tier is None:
            from ottla.spark.tier.planning import TierPlanner

            self._tier = TierPlanner(tier, self._options.client.isolation)
        return self._tier

    def _limited(self, begin: Offsets, latest: Offsets, limit: Limit) -> Offsets:
        end = latest if limit.max_rows is None else limited(begin, latest, limit.max_rows)
        if limit.max_bytes is None:
            return end
        if self._sizes is None:
            cluster = cast("Cluster", self._cluster)  # the option is refused without a broker
            self._sizes = RecordSizes(cluster.record_sizes, self._options.metadata_ttl)
        sizes = self._sizes.of(latest)
        by_bytes = limited_bytes(begin, latest, limit.max_bytes, sizes)
        return {place: min(at, by_bytes[place]) for place, at in end.items()}

    @property
    def _table_planner(self) -> TablePlanner:
        if self._tables is None:
            from ottla.spark.tables.planning import TablePlanner

            options = self._options
            assert options.table is not None
            as_rows = options.typed is not None and options.typed.format == "table"
            self._tables = TablePlanner(options.client, options.table, as_rows=as_rows)
        return self._tables

    def _archived(self, ranges: Sequence[Range]) -> tuple[list[FilePart], list[Range]]:
        """Split ranges into parts from a table's files and the rest."""
        places = {TopicPartition(one.topic, one.partition): EARLIEST for one in ranges}
        starts = self._cluster.offsets(places) if places else {}
        return self._table_planner.cover(ranges, starts, self._options.split)

    def _covered(self, ranges: Sequence[Range]) -> Covered:
        """Split ranges into parts from objects and parts from the live log."""
        from ottla.spark.tier.planning import Covered

        tier = self._options.tier
        assert tier is not None
        try:
            found = background().call(self._planner.cover(ranges))
        except RemoteStorageError as error:
            if tier.mode != "auto":
                raise
            LOG.warning("%s cannot be read; reading from the broker instead: %s", tier.url, error)
            return Covered([], list(ranges))
        if tier.mode == "auto" or not found.rest:
            return found
        left = ", ".join(
            f"{one.topic}-{one.partition} {one.first}..{one.end}" for one in found.rest
        )
        self._lost(f"{tier.url} does not have all of {left}")
        return Covered(found.pieces, [])

    def _refresh(self) -> None:
        """Reload the topics; a topic with a new id was recreated."""
        self._topics = self._cluster.topics(self._options.selection)
        self._topics_at = time.monotonic()
        for name, topic in self._topics.items():
            known = self._ids.get(name, ZERO_UUID)
            if topic.id == ZERO_UUID or known == topic.id:
                continue
            self._ids[name] = topic.id
            if known != ZERO_UUID:
                self._lost(f"topic {name!r} was deleted and created again")

    def _existing(self) -> set[TopicPartition]:
        there = {
            TopicPartition(name, one.index)
            for name, topic in self._topics.items()
            for one in topic.partitions
        }
        assign = self._options.selection.assign
        return there if assign is None else there & assign

    def _partitions(self, *, must_exist: bool) -> list[TopicPartition]:
        if time.monotonic() - self._topics_at >= self._options.metadata_ttl:
            self._refresh()
        selection = self._options.selection
        missing = set(selection.names() or ()) - self._topics.keys()
        if must_exist and missing:
            raise missing_topics(missing)
        places = self._existing()
        if must_exist and selection.assign is not None and places != selection.assign:
            raise BadOption(f"assign: {_names(selection.assign - places)} do not exist")
        return sorted(places)

    def _resolved(self, where: Where, places: Sequence[TopicPartition], option: str) -> Offsets:
        """Resolve the offsets of an option."""
        if isinstance(where, AtEnd):
            return self._cluster.offsets(dict.fromkeys(places, where.end))
        if isinstance(where, OfGroup):
            return self._or_earliest(self._cluster.committed(where.group), places)
        if isinstance(where, OfStore):
            return self._or_earliest(stored(self._store, where.key), places)
        assigned(where, set(places), option)
        if isinstance(where, Given):
            ends = {place: end for place, end in where.offsets.items() if end < 0}
            return {**where.offsets, **(self._cluster.offsets(ends) if ends else {})}
        return self._at_time(where, places, option)

    def _or_earliest(self, known: Offsets, places: Sequence[TopicPartition]) -> Offsets:
        found = {place: known[place] for place in places if place in known}
        rest = dict.fromkeys((one for one in places if one not in found), EARLIEST)
        return {**found, **(self._cluster.offsets(rest) if rest else {})}

    def _make_mirrors(self) -> list[Mirror]:
        options = self._options
        mirrors = []
        if options.offsets_group is not None:
            commit = partial(self._cluster.commit, options.offsets_group)
            mirrors.append(Mirror(commit, f"group {options.offsets_group}"))
        if options.offset_store is not None:
            save = partial(store_offsets, self._store, options.offset_store_key)
            must = options.offset_store_required
            mirrors.append(Mirror(save, options.offset_store, required=must))
        if options.on_settled is not None:
            mirrors.append(Mirror(settled_hook(options.on_settled), options.on_settled))
        return mirrors

    @property
    def _store(self) -> SyncOffsetStore:
        if self._opened is None:
            assert self._options.offset_store is not None
            self._opened = open_store(self._options.offset_store)
        return self._opened

    def _at_time(self, where: AtTime, places: Sequence[TopicPartition], option: str) -> Offsets:
        times = dict.fromkeys(places, where.times) if isinstance(where.times, int) else where.times
        found = self._cluster.offsets(times)
        none = sorted(place for place, offset in found.items() if offset < 0)
        if none and not where.or_latest:
            raise BadOption(
                f"{option}: {_names(none)} have no record at or after the time; give an earlier "
                "one, or startingOffsetsByTimestampStrategy=latest"
            )
        ends = dict.fromkeys(none, LATEST)
        return {**found, **(self._cluster.offsets(ends) if ends else {})}

    def _ends(self, begin: Offsets) -> Offsets:
        """The current ends; handles new and missing partitions."""
        places = self._partitions(must_exist=False)
        if not self._is_quiet or set(self._latest) != set(places):
            self._latest = self._cluster.offsets(dict.fromkeys(places, LATEST)) if places else {}
        gone = sorted(begin.keys() - self._latest.keys())
        if gone:
            self._lost_partitions(gone)
        self._check_new(begin)
        self._wait_for_the_end(begin)
        return self._latest

    def _check_new(self, begin: Offsets) -> None:
        new = {place: EARLIEST for place in self._latest if place not in begin}
        for place, first in (self._cluster.offsets(new) if new else {}).items():
            if first > 0:
                self._lost(f"{place} is new to the query and begins at offset {first}, not at 0")

    def _wait_for_the_end(self, begin: Offsets) -> None:
        """Look again at logs that seem too short, as while a leader moves; then report the loss."""
        retries = self._options.retries
        while behind := sorted(p for p, end in self._latest.items() if end < begin.get(p, 0)):
            if not retries:
                place = behind[0]
                self._lost(
                    f"{place} ends at offset {self._latest[place]}, before offset {begin[place]} "
                    "where the query is"
                )
                return
            retries -= 1
            time.sleep(self._options.retry_interval)
            self._latest = self._cluster.offsets(dict.fromkeys(self._latest, LATEST))

    def _lost_partitions(self, gone: Sequence[TopicPartition]) -> None:
        topics = {place.topic for place in gone} - self._topics.keys()
        other = ", or the checkpoint is that of another query" if topics else ""
        self._lost(f"{_names(gone)} no longer exist{other}")

    def _lost(self, what: str) -> None:
        report_loss(what, fail=self._options.fail_on_data_loss)


def report_loss(what: str, *, fail: bool) -> None:
    """Raise or warn about lost records, depending on `failOnDataLoss`."""
    if fail:
        raise DataLoss(
            f"{what}; some records may be lost: set failOnDataLoss=false to go on without them"
        )
    LOG.warning("%s; some records may be lost; the query continues without them", what)


def _names(places: Iterable[TopicPartition]) -> str:
    listed = sorted(places)
    some = ", ".join(str(one) for one in listed[:10])
    return some + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
