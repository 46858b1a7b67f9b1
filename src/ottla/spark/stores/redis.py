"""Redis Streams as a source: entries by their ids, read by plain XRANGE.

An id is an offset by `IdFormat`, milliseconds and counter in 64 bits. Consumer groups are not used:
their pending entries cannot be read again once they are trimmed. A batch ends right after an entry
that existed when it was planned; if that entry is missing when the batch is read, so are others,
and that is data loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from redis.asyncio.connection import parse_url
from redis.exceptions import RedisError, ResponseError

from ottla.client.cluster.view import TopicPartition
from ottla.spark.background import background
from ottla.spark.errors import BadOption, SparkError
from ottla.spark.offsets import batch_start, from_json
from ottla.spark.stores.streams import StreamsBackend, to_arrow
from ottla.streams.backends.redis_entries import EntryFormat
from ottla.streams.backends.redis_ids import IdFormat
from ottla.streams.backends.redis_link import Link
from ottla.streams.backends.redis_replies import entries
from ottla.streams.backends.redis_shards import Shards
from ottla.streams.errors import FormatError
from ottla.streams.types import RedisOptions

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from typing import TypeVar

    import pyarrow as pa

    from ottla.spark.backend import Offset, Task
    from ottla.spark.offsets import Offsets
    from ottla.spark.options import SourceOptions
    from ottla.streams.backends.redis_replies import RawEntry
    from ottla.streams.types import Message

    T = TypeVar("T")

PAGE: Final = 4096  # entries for each XRANGE
IDS: Final = IdFormat()


class EntryRange(NamedTuple):
    """Entries of one key from `first` up to `end`."""

    stream: str
    shard: int
    key: str
    first: int
    end: int


class _Connection:
    """A link with the closing that `Background` expects."""

    def __init__(self, url: str) -> None:
        try:
            settings = cast("dict[str, Any]", dict(parse_url(url)))
        except ValueError as error:
            raise BadOption(f"path: {error}; give redis://host:port/db") from None
        if settings.pop("connection_class", None) is not None:
            settings["ssl"] = True
        self.link = Link({"port": 6379, "host": "127.0.0.1", **settings}, RedisOptions())

    async def close(self) -> None:
        await self.link.close()


class RedisBackend(StreamsBackend):
    """Streams of one Redis server."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._keys: dict[TopicPartition, str] = {}
        self._format = EntryFormat(IDS, options.redis_field)

    def ends(self) -> Offsets:
        with self._connected() as connection:
            return self._call(self._ends(connection.link))

    def limited(self, begin: Offsets, latest: Offsets, rows: int) -> Offsets:
        ahead = [place for place, end in latest.items() if end > begin.get(place, 0)]
        share = max(1, rows // len(ahead))
        found = dict(latest)
        with self._connected() as connection:
            for place in ahead:
                page = self._call(
                    self._page(
                        connection.link,
                        self._keys[place],
                        begin.get(place, 0),
                        latest[place],
                        share,
                    )
                )
                if page:
                    found[place] = IDS.to_seq(page[-1].id) + 1
        return found

    def at_time(self, times: int, ends: Offsets) -> Offsets:
        return dict.fromkeys(ends, times << IDS.bits)

    def is_cut(self, offset: int, end: int | None) -> bool:
        """Always False: read entries may be trimmed, and ids never decrease."""
        return False

    def plan(self, start: Offset, end: Offset) -> Sequence[Task]:
        first = batch_start(start, end)
        if not self._keys:
            self.ends()
        found = []
        for place, last in sorted(from_json(end).items()):
            if place not in self._keys:
                self.lost(f"{place} no longer exists")
            elif first.get(place, 0) < last:
                found.append(EntryRange(*place, self._keys[place], first.get(place, 0), last))
        return found

    def read(self, task: Task, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = cast("EntryRange", task)
        reached = wanted.first
        with self._connected() as connection:
            while reached < wanted.end:
                page = self._call(
                    self._page(connection.link, wanted.key, reached, wanted.end, PAGE)
                )
                if not page:
                    break
                messages = self._messages(wanted, page)
                reached = messages[-1].seq + 1
                yield to_arrow(messages, columns)
        if reached < wanted.end:
            self.lost(
                f"the entry {IDS.to_id(wanted.end - 1)} of {wanted.key} has been deleted or trimmed"
            )

    def _messages(self, wanted: EntryRange, page: list[RawEntry]) -> list[Message]:
        try:
            return [self._format.message(wanted.stream, wanted.shard, one, 1) for one in page]
        except FormatError:
            field = self._options.redis_field
            raise SparkError(
                f"an entry of {wanted.key} has no field {field!r}: say which field is the value "
                "with the option redisField"
            ) from None

    def _connected(self) -> Any:
        path = self._options.store.path
        return background().borrowed(("redis", path), lambda: _Connection(path))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return background().call(work)
        except (RedisError, OSError) as error:
            raise SparkError(f"Redis cannot be read: {error}; is the server running?") from error

    async def _ends(self, link: Link) -> Offsets:
        streams = self._options.selection.subscribe or ()
        shards = await Shards(link, streams, RedisOptions()).discover()
        client: Any = link.client
        found = {}
        for shard in shards:
            place = TopicPartition(shard.stream, shard.number)
            try:
                (last,) = entries(await client.xrevrange(shard.key, count=1)) or (None,)
            except ResponseError as error:
                raise BadOption(f"{shard.key} is not a stream: {error}") from None
            self._keys[place] = shard.key
            found[place] = 0 if last is None else IDS.to_seq(last.id) + 1
        return found

    async def _page(self, link: Link, key: str, first: int, end: int, count: int) -> list[RawEntry]:
        client: Any = link.client
        reply = await client.xrange(key, IDS.to_id(first), IDS.to_id(end - 1), count=count)
        return entries(reply)
