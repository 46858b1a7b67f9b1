"""MessagePack, read within limits."""

from __future__ import annotations

from typing import Any

from ottla.console.decode.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, Number, Tree, Unreadable


def read(data: bytes) -> Tree:
    """The document; raises `Unreadable`."""
    import msgpack

    if len(data) > MAX_BYTES:
        raise Unreadable(f"MessagePack of more than {MAX_BYTES:,} bytes")
    made = _Made()
    try:
        value = msgpack.unpackb(
            data,
            strict_map_key=False,
            max_array_len=MAX_NODES,
            max_map_len=MAX_NODES,
            object_pairs_hook=made.pairs,
            list_hook=made.items,
        )
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise Unreadable(f"not MessagePack: {error or type(error).__name__}") from None
    return _Budget().tree(value, 0)


class _Pairs(list[tuple[Any, Any]]):
    """A map as it was sent."""

    __slots__ = ()


class _Made:
    """Counts maps and lists as they are read: a value has room for a million empty ones."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def pairs(self, found: list[tuple[Any, Any]]) -> _Pairs:
        self._count()
        return _Pairs(found)

    def items(self, found: list[Any]) -> list[Any]:
        self._count()
        return found

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Unreadable(f"MessagePack of more than {MAX_NODES:,} nodes")


class _Budget:
    """Counts nodes while it makes the tree."""

    def __init__(self) -> None:
        self._left = MAX_NODES

    def tree(self, value: Any, depth: int) -> Tree:
        self._left -= 1
        if self._left < 0:
            raise Unreadable(f"MessagePack of more than {MAX_NODES:,} nodes")
        if depth > MAX_DEPTH:
            raise Unreadable(f"MessagePack nested more than {MAX_DEPTH} deep")
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int | float):
            return Number(repr(value))
        if isinstance(value, _Pairs):
            made = {_key(key): self.tree(one, depth + 1) for key, one in value}
            if len(made) < len(value):
                raise Unreadable("a key is there more than once")
            return made
        if isinstance(value, list):
            return [self.tree(one, depth + 1) for one in value]
        if isinstance(value, bytes):
            return f"0x{value.hex()}"
        return repr(value)


def _key(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
