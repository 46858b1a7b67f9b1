"""Common base of sources over stores other than the log of a topic.

Rules:

- Offsets have the same form as for topics, `{"stream": {"0": 5}}`, and name the next message to
  read. They follow the order of the store, so the same offsets always mean the same messages.
- Nothing is settled: only Spark's checkpoint has the position of a query.
- Columns are those of topics, `topic` being the stream, `partition` the shard and `offset` the
  sequence.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ottla.spark.backend import Backend, Bounds, Limit, Offset
from ottla.spark.errors import BadOption
from ottla.spark.log.backend import report_loss
from ottla.spark.offsets import (
    LATEST,
    AtEnd,
    AtTime,
    Given,
    Offsets,
    Where,
    capped,
    first_end,
    from_json,
    to_json,
)
from ottla.wire.arrow import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.spark.options import SourceOptions
    from ottla.streams.types import Message


class StreamsBackend(Backend):
    """A store of shards; subclasses find the shards and look up their ends."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: Offset | None = None
        self._target: Offsets | None = None
        self._latest: Offsets = {}

    @abstractmethod
    def ends(self) -> Offsets:
        """The current end of each shard: after a message, or 0."""

    @abstractmethod
    def limited(self, begin: Offsets, latest: Offsets, rows: int) -> Offsets:
        """The end of a batch of about this many messages."""

    def at_time(self, times: int, ends: Offsets) -> Offsets:
        """The first offset at or after a time in milliseconds."""
        raise BadOption("times cannot be looked up in this store: give startingOffsets")

    def is_cut(self, offset: int, end: int | None) -> bool:
        """Whether a shard that ends here has lost messages at an offset."""
        return end is not None and end < offset

    def bounds(self) -> Bounds:
        options = self._options
        ends = self._latest = self.ends()
        self._initial = to_json(self._resolved(options.start, ends, options.start_option))
        last = ends
        if options.mode == "batch":
            last = self._resolved(options.end, ends, options.end_option)
        return Bounds(self._initial, to_json(last))

    def advance(self, start: Offset, limit: Limit) -> Offset:
        begin = from_json(start)
        latest = self._look(begin)
        if latest == begin and self._target is None:
            time.sleep(self._options.long_poll)
            latest = self._look(begin)
        if latest == begin:
            return start
        if limit.max_rows is not None:
            latest = self.limited(begin, latest, limit.max_rows)
        return first_end(begin, latest) if start == self._initial else to_json(latest)

    def freeze(self) -> None:
        self._target = self.ends()

    def latest(self) -> Offset | None:
        return to_json(self._latest) if self._latest else None

    def settle(self, end: Mapping[str, Any]) -> None:
        """Does nothing: only Spark's checkpoint has the position."""

    def close(self) -> None:
        """Does nothing: idle connections are closed after a while."""

    def lost(self, what: str) -> None:
        """Raise or warn about lost messages, depending on `failOnDataLoss`."""
        report_loss(what, fail=self._options.fail_on_data_loss)

    def _look(self, begin: Offsets) -> Offsets:
        """The ends, at least the position of the query in each shard."""
        self._latest = self.ends()
        gone = sorted(begin.keys() - self._latest.keys())
        if gone:
            self.lost(f"{', '.join(map(str, gone))} no longer exist")
        for place, offset in begin.items():
            if self.is_cut(offset, self._latest.get(place)):
                self.lost(f"{place} ends at {self._latest[place]}, before {offset}")
        found = capped(self._latest, self._target)
        known = {place: offset for place, offset in begin.items() if place in self._latest}
        return known | {
            place: max(end, begin.get(place, 0)) for place, end in sorted(found.items())
        }

    def _resolved(self, where: Where, ends: Offsets, option: str) -> Offsets:
        if isinstance(where, AtEnd):
            return ends if where.end == LATEST else dict.fromkeys(ends, 0)
        if isinstance(where, AtTime) and isinstance(where.times, int):
            return self.at_time(where.times, ends)
        if not isinstance(where, Given):
            raise BadOption(f"{option}: this store takes earliest, latest or offsets in JSON")
        named = {place: where.offsets.get(place, 0) for place in ends}
        if where.offsets.keys() - named.keys():
            unknown = ", ".join(map(str, sorted(where.offsets.keys() - named.keys())))
            raise BadOption(f"{option} names {unknown}, which the query does not read")
        return {
            place: ends[place] if offset == LATEST else max(offset, 0)
            for place, offset in named.items()
        }


def to_arrow(messages: Sequence[Message], columns: Sequence[str]) -> pa.RecordBatch:
    """Messages with the columns of topics."""
    made = [_column(messages, name) for name in columns]
    return pa.record_batch(made, schema=pa.schema([SCHEMA.field(name) for name in columns]))


def _column(messages: Sequence[Message], name: str) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name == "timestamp":
        return pa.array([one.timestamp_ns // 1000 for one in messages], pa.int64()).cast(kind)
    if name == "timestampType":
        return pa.array([0] * len(messages), kind)
    if name == "headers":
        pairs = [
            [{"key": key, "value": value} for key, value in one.headers] or None for one in messages
        ]
        return pa.array(pairs, kind)
    attribute = {"value": "payload", "topic": "stream", "partition": "shard", "offset": "seq"}
    field = attribute.get(name, name)
    return pa.array([getattr(one, field) for one in messages], kind)
