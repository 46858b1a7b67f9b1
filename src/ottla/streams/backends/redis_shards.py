"""The keys behind streams: which there are, where they end, and the groups made on them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ResponseError

from ottla.streams.backends.redis_keys import base_key, shard_of
from ottla.streams.backends.redis_lane import BEGINNING_ID, Shard, id_parts
from ottla.streams.backends.redis_replies import text
from ottla.streams.errors import StreamKeyNotFound

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ottla.streams.backends.redis_lane import Found
    from ottla.streams.backends.redis_link import Link
    from ottla.streams.types import RedisOptions

LOGGER: Final = logging.getLogger(__name__)
SCAN_COUNT: Final = 1000


class Shards:
    """Questions about the keys of some streams."""

    def __init__(self, link: Link, streams: Sequence[str], options: RedisOptions) -> None:
        self._link = link
        self._client: Any = link.client  # the commands of Redis and RedisCluster, typed alike
        self._streams = streams
        self._options = options

    def shard(self, stream: str, number: int | None) -> Shard:
        """A shard by its number; None is the bare key of an unsharded stream."""
        base = base_key(stream, hash_tag=self._options.hash_tag)
        if number is None:
            return Shard(stream, 0, base)
        return Shard(stream, number, f"{base}:{number}")

    async def discover(self) -> list[Shard]:
        """All shards there are now, in order; the bare key of a stream that has none."""
        found = []
        for stream in self._streams:
            numbers: Sequence[int | None] = await self._numbers(stream) or [None]
            found += [self.shard(stream, number) for number in numbers]
        return found

    async def appeared(self, known: Collection[str]) -> list[Shard]:
        """Shards that are new since. The bare key counts as shard 0 and keeps that number."""
        new = []
        for shard in await self.discover():
            if shard.key in known:
                continue
            if (
                shard.number == 0
                and base_key(shard.stream, hash_tag=self._options.hash_tag) in known
            ):
                LOGGER.warning("%s is not read beside the unsharded stream", shard.key)
                continue
            new.append(shard)
        return new

    async def _numbers(self, stream: str) -> list[int]:
        if self._options.shards is not None:
            return list(range(self._options.shards))
        base = base_key(stream, hash_tag=self._options.hash_tag)
        keys = self._client.scan_iter(match=f"{base}:*", count=SCAN_COUNT, _type="stream")
        numbers = {shard_of(key, base) async for key in keys}
        return sorted(number for number in numbers if number is not None)

    async def tail(self, shard: Shard) -> str:
        """The last id ever given on this key, `0-0` where there is none yet."""
        try:
            info = await self._client.xinfo_stream(shard.key)
        except ResponseError as error:
            if "no such key" not in str(error):
                raise
            if not self._options.mkstream:
                raise self._missing(shard) from error
            return BEGINNING_ID
        return text(info["last-generated-id"])

    async def has_after(self, shard: Shard, entry_id: str) -> bool:
        """Whether there is an entry with a higher id. The last one given may have been deleted."""
        return bool(await self._client.xrange(shard.key, f"({entry_id}", "+", count=1))

    async def create_group(self, shard: Shard, group: str, start: str) -> None:
        """Create the group; an existing one is no error."""
        try:
            await self._client.xgroup_create(
                shard.key, group, id=start, mkstream=self._options.mkstream
            )
        except ResponseError as error:
            if "requires the key to exist" in str(error):
                raise self._missing(shard) from error
            if not str(error).startswith("BUSYGROUP"):
                raise
        if self._options.recreate_group:
            shard.floor = await self._delivered(shard, group)

    async def has_group(self, shard: Shard, group: str) -> bool:
        try:
            return await self._group_info(shard, group) is not None
        except ResponseError:
            return False

    async def group_lag(self, shard: Shard, group: str) -> int | None:
        """Unacknowledged entries of the group; None if the server cannot tell."""
        info = await self._group_info(shard, group)
        if info is None or info.get("lag") is None:
            return None
        return int(info["lag"]) + int(info["pending"])

    async def delivery_counts(self, found: Found, group: str, consumer: str) -> dict[str, int]:
        """How often the entries were delivered so far, as the server counts."""
        ids = [entry.id for entry in found.entries]
        rows = await self._client.xpending_range(
            found.shard.key,
            group,
            min=min(ids, key=id_parts),
            max=max(ids, key=id_parts),
            count=len(found.shard.held) + len(ids),
            consumername=consumer,
        )
        return {text(row["message_id"]): int(row["times_delivered"]) for row in rows}

    async def _delivered(self, shard: Shard, group: str) -> str:
        info = await self._group_info(shard, group)
        return BEGINNING_ID if info is None else text(info["last-delivered-id"])

    async def _group_info(self, shard: Shard, group: str) -> dict[str, Any] | None:
        groups: list[dict[str, Any]] = await self._client.xinfo_groups(shard.key)
        return next((one for one in groups if text(one["name"]) == group), None)

    def _missing(self, shard: Shard) -> StreamKeyNotFound:
        return StreamKeyNotFound(
            f"there is no key {shard.key!r} on the server; send to it first",
            fix="or connect with RedisOptions(mkstream=True)",
            stream=shard.stream,
            shard=shard.number,
        )
