"""Redis keys of streams and shards, and which shard a message goes to.

An unsharded stream is the key `name`, shard k the key `name:k`. On a cluster a command may only
name keys of one slot: `by_slot` groups them. With a hash tag the name is in braces, and all shards
of a stream share a slot.
"""

from __future__ import annotations

import zlib
from itertools import count
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.randomness import RANDOM
from ottla.streams.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.streams.types import Outgoing

Sharder: TypeAlias = "Callable[[Outgoing, int], int]"


def base_key(stream: str, *, hash_tag: bool) -> str:
    return f"{{{stream}}}" if hash_tag else stream


def shard_of(key: bytes, base: str) -> int | None:
    """The number behind `base:`, or None for a key that only looks like a shard (`name:x`)."""
    suffix = key.decode("utf-8", "replace").removeprefix(f"{base}:")
    if not (suffix.isascii() and suffix.isdigit()) or str(int(suffix)) != suffix:
        return None
    return int(suffix)


def by_slot(keys: Iterable[str]) -> list[list[str]]:
    """Group keys by hash slot, for one command each."""
    from redis.crc import key_slot

    groups: dict[int, list[str]] = {}
    for key in keys:
        groups.setdefault(key_slot(key.encode()), []).append(key)
    return list(groups.values())


def round_robin() -> Sharder:
    turn = count()
    return lambda _message, shards: next(turn) % shards


def uniform() -> Sharder:
    return lambda _message, shards: RANDOM.randrange(shards)


def by_key() -> Sharder:
    """crc32 of the message key; messages without one take turns."""
    turns = round_robin()

    def choose(message: Outgoing, shards: int) -> int:
        key = message.key
        return turns(message, shards) if key is None else zlib.crc32(key) % shards

    return choose


_SHARDERS: Final = {"round_robin": round_robin, "random": uniform, "key": by_key}


def sharder(chosen: str | Sharder) -> Sharder:
    """The sharder of this name, or the given function."""
    if not isinstance(chosen, str):
        return chosen
    if chosen not in _SHARDERS:
        names = ", ".join(_SHARDERS)
        raise ConfigError(f"{chosen!r} is not a sharder; choose {names} or give a function")
    return _SHARDERS[chosen]()
