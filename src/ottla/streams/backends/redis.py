"""Redis Streams: `redis://` and, with TLS, `rediss://`.

A stream is a key, a shard the key `name:k`; sequences are made of entry ids (`redis_ids`). Groups
are consumer groups of the server, which acknowledge entry by entry; see `redis_lane` for how
pending entries are read, claimed and recovered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ottla.streams.backends.redis_entries import EntryFormat
from ottla.streams.backends.redis_ids import IdFormat
from ottla.streams.backends.redis_link import DEFAULT_PORT, Link, told_as_ours
from ottla.streams.backends.redis_shards import Shards
from ottla.streams.backends.redis_sink import PER_PIPELINE, RedisSink
from ottla.streams.backends.redis_source import RedisSource
from ottla.streams.base import Driver, Operation
from ottla.streams.errors import ConfigError, Unsupported, UrlError
from ottla.streams.modes import consumer_name, has_wildcard, member_id
from ottla.streams.types import Backend, Mode, RedisOptions, to_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ottla.streams.base import Sink, Source
    from ottla.streams.positions import StoredPositions
    from ottla.streams.types import ConnectOptions, ConsumerOptions, ProducerOptions
    from ottla.streams.url import StreamUrl

_CHOICES = {
    "seq_bits": (16, 64),
    "timestamp_format": ("ms", "ns"),
    "on_bad_entry": ("raise", "skip", "dead_letter"),
}


class RedisDriver(Driver):
    """One Redis server, or a cluster."""

    backend: ClassVar[Backend] = Backend.REDIS
    unsupported: ClassVar[Mapping[Operation, str]] = {
        Operation.SHARED: "Redis has no share groups; mode=LOAD_BALANCED shares entry by entry",
        Operation.NULLS: "fields of an entry have values, perhaps empty ones",
        Operation.TRANSACTIONS: "acknowledging and adding entries are separate commands",
    }

    def __init__(self, url: StreamUrl, options: ConnectOptions) -> None:
        super().__init__(url, options)
        self._redis = options.redis or RedisOptions()
        _check(self._redis)
        self._link = Link(self._settings(), self._redis)

    def _settings(self) -> dict[str, Any]:
        url, redis = self.url, self._redis
        host, port = _address(url.nodes[0])
        port = port or str(DEFAULT_PORT)
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            # Not quoted: without an @ it may be a password.
            raise UrlError("the port of a Redis URL is a number from 1 to 65535")
        settings: dict[str, Any] = {
            "host": host,
            "port": int(port),
            "db": url.db or 0,
            "username": url.username,
            "password": url.password,
            "socket_timeout": self.options.timeout,
            "socket_connect_timeout": self.options.timeout,
        }
        if url.scheme == "rediss":
            settings["ssl"] = True
            if redis.tls_ca_file is not None:
                settings["ssl_ca_certs"] = redis.tls_ca_file
        return {**settings, **(redis.extra or {})}

    async def open(self) -> None:
        await self._link.connect()

    def source(
        self, streams: Sequence[str], options: ConsumerOptions, stored: StoredPositions | None
    ) -> Source:
        redis = options.redis or self._redis
        _check(redis)
        if has_wildcard(streams):
            raise Unsupported("Redis needs the names of the streams; give at least one")
        if stored is not None and options.mode is Mode.LOAD_BALANCED:
            raise ConfigError(
                "members of a Redis group see interleaved ids, so one position means nothing; "
                "use mode=RESUMABLE with offsets=, or the group of the server without"
            )
        is_grouped = options.mode is not Mode.REAL_TIME and stored is None
        group = consumer_name(options) if is_grouped else None
        # A resumable consumer has its group's name, so that a restart finds its own pending list.
        name = group if options.mode is Mode.RESUMABLE and group is not None else member_id()
        return RedisSource(
            self._link,
            _entries(redis),
            streams,
            options,
            redis,
            group=group,
            consumer=redis.consumer_id or name,
            stored=stored,
        )

    def sink(self, options: ProducerOptions) -> Sink:
        redis = options.redis or self._redis
        _check(redis)
        # Nothing stops Redis within a pipeline.
        per_pipeline = 1 if options.stop_at_failure else PER_PIPELINE
        return RedisSink(self._link, _entries(redis), redis, per_pipeline)

    async def trim(
        self,
        stream: str,
        *,
        maxlen: int | None = None,
        min_ts: datetime | None = None,
        approximate: bool = True,
    ) -> int:
        """Drop the oldest entries of every shard; how many went."""
        if (maxlen is None) == (min_ts is None):
            raise ConfigError("trim by maxlen or by min_ts, one of them")
        how = "~" if approximate else "="
        if min_ts is None:
            limit = ("MAXLEN", how, str(maxlen))
        else:
            limit = ("MINID", how, str(_entries(self._redis).ids.left_of(to_ns(min_ts))))
        trimmed = 0
        with told_as_ours("trim the stream"):
            for shard in await Shards(self._link, [stream], self._redis).discover():
                trimmed += int(await self._link.client.execute_command("XTRIM", shard.key, *limit))
        return trimmed

    async def close(self) -> None:
        await self._link.close()


def _entries(redis: RedisOptions) -> EntryFormat:
    return EntryFormat(IdFormat(redis.seq_bits, redis.timestamp_format == "ns"), redis.field)


def _address(node: str) -> tuple[str, str]:
    """Host and port, which may be missing; an IPv6 address is in brackets."""
    if node.startswith("["):
        host, _, port = node[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = node.partition(":")
    return host, port


def _check(redis: RedisOptions) -> None:
    for name, choices in _CHOICES.items():
        value = getattr(redis, name)
        if value not in choices:
            raise ConfigError(f"RedisOptions({name}=...) is one of {choices}, not {value!r}")
    if redis.field == "key":
        raise ConfigError('the field "key" holds the message key; choose another for the payload')
