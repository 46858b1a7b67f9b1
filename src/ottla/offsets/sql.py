"""The SQL of a store, without a driver: statements and the meaning of rows.

An operation is a generator that yields statements, is sent their rows and returns its result, so
that one text serves blocking and asynchronous connections. A save reads, decides (`rules`) and
writes under the guard that the position is still the one it has read; if another writer was faster
it reads again. So it is right in any isolation level, and with a connection whose transaction only
begins with its first write.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.clock import SYSTEM
from ottla.offsets.errors import InvalidOffsetArgument, InvalidOffsetType, OffsetConflict
from ottla.offsets.rules import Stored, current, decide, goes_on, saved
from ottla.offsets.types import OffsetKey, check_consumer, check_epoch, check_key

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from decimal import Decimal

    from ottla.offsets.rules import Wish
    from ottla.offsets.types import CommitInfo

DEFAULT_TABLE: Final = "stream_offsets"
DIGITS: Final = 39
"""Of 2^128-1."""
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")

Value: TypeAlias = "str | int | Decimal | None"
Row: TypeAlias = "Sequence[Value]"
T = TypeVar("T")


class LostRace(Exception):
    """The transaction must be repeated: another one changed the position first."""


class Statement(NamedTuple):
    text: str
    values: tuple[Value, ...] = ()
    writes: bool = False


Steps: TypeAlias = "Generator[Statement, Sequence[Row], T]"


class Dialect(Protocol):
    """The statements of one database for one table."""

    def create_table(self) -> Statement: ...
    def select(self, key: OffsetKey, *, for_save: bool) -> Statement: ...
    def insert(self, key: OffsetKey, new: Stored) -> Statement: ...
    def update(self, key: OffsetKey, stored: Stored, new: Stored) -> Statement: ...
    def advance(self, key: OffsetKey, expected: int, position: int) -> Statement: ...
    def delete(self, key: OffsetKey) -> Statement: ...
    def list_all(self, consumer: str | None) -> Statement: ...
    def shard(self, value: Value) -> int: ...


def check_table(table: str) -> str:
    """Raise unless this is a table name, with or without schema."""
    if not isinstance(table, str):
        raise InvalidOffsetType(f"table is {table!r} of type {type(table).__name__}, name a table")
    if not _TABLE.fullmatch(table):
        raise InvalidOffsetArgument(f"{table!r} is not a valid table name")
    return table


class SqliteDialect:
    """Positions are 39 digits of text, which compare as numbers do; shards are signed.

    Writes return no rows, because that costs SQLite a table; the caller counts the changed rows.
    """

    def __init__(self, table: str) -> None:
        where = "WHERE consumer = ? AND stream = ? AND shard = ?"
        self._create = (
            f"CREATE TABLE IF NOT EXISTS {check_table(table)} (consumer TEXT NOT NULL, "
            "stream TEXT NOT NULL, shard INTEGER NOT NULL, position TEXT NOT NULL "
            f"CHECK (length(position) = {DIGITS}), epoch TEXT, updated_ms INTEGER NOT NULL, "
            "PRIMARY KEY (consumer, stream, shard)) WITHOUT ROWID"
        )
        self._select = f"SELECT position, epoch FROM {table} {where}"
        self._insert = (
            f"INSERT INTO {table} (position, epoch, updated_ms, consumer, stream, shard) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
        )
        self._update = (
            f"UPDATE {table} SET position = ?, epoch = ?, updated_ms = ? {where} AND position = ?"
        )
        self.advance_text = (
            f"UPDATE {table} SET position = ?, updated_ms = ? {where} AND position = ?"
        )
        self._delete = f"DELETE FROM {table} {where}"
        self._list = f"SELECT consumer, stream, shard, position FROM {table}"

    def create_table(self) -> Statement:
        return Statement(self._create, writes=True)

    def select(self, key: OffsetKey, *, for_save: bool) -> Statement:
        return Statement(self._select, _sqlite_key(key))

    def insert(self, key: OffsetKey, new: Stored) -> Statement:
        return Statement(self._insert, _sqlite_new(new) + _sqlite_key(key), writes=True)

    def update(self, key: OffsetKey, stored: Stored, new: Stored) -> Statement:
        values = (*_sqlite_new(new), *_sqlite_key(key), _digits(stored.position))
        return Statement(self._update, values, writes=True)

    def advance(self, key: OffsetKey, expected: int, position: int) -> Statement:
        values = self.advance_values(key, expected, position)
        return Statement(self.advance_text, values, writes=True)

    def advance_values(self, key: OffsetKey, expected: int, position: int) -> tuple[Value, ...]:
        """For `advance_text`; apart, and without help from others, for who has no time to lose."""
        shard = key.shard if key.shard < 2**63 else key.shard - 2**64
        now = SYSTEM.wall_ms()
        new, old = str(position).zfill(DIGITS), str(expected).zfill(DIGITS)
        return new, now, key.consumer, key.stream, shard, old

    def delete(self, key: OffsetKey) -> Statement:
        return Statement(self._delete, _sqlite_key(key), writes=True)

    def list_all(self, consumer: str | None) -> Statement:
        if consumer is None:
            return Statement(self._list)
        return Statement(f"{self._list} WHERE consumer = ?", (consumer,))

    def shard(self, value: Value) -> int:
        return _integer(value) % 2**64


class PostgresDialect:
    """Positions and shards are numeric; a save locks the row it has read."""

    def __init__(self, table: str) -> None:
        where = "WHERE consumer = %s AND stream = %s AND shard = %s"
        self._create = (
            f"CREATE TABLE IF NOT EXISTS {check_table(table)} (consumer text NOT NULL, "
            "stream text NOT NULL, shard numeric(20,0) NOT NULL, position numeric(39,0) NOT NULL "
            "CHECK (position >= 0), epoch text, updated_at timestamptz NOT NULL, "
            "PRIMARY KEY (consumer, stream, shard))"
        )
        self._select = f"SELECT position, epoch FROM {table} {where}"
        self._insert = (
            f"INSERT INTO {table} (position, epoch, updated_at, consumer, stream, shard) "
            "VALUES (%s, %s, now(), %s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1"
        )
        self._update = (
            f"UPDATE {table} SET position = %s, epoch = %s, updated_at = now() {where} "
            "AND position = %s RETURNING 1"
        )
        self._advance = (
            f"UPDATE {table} SET position = %s, updated_at = now() {where} "
            "AND position = %s RETURNING 1"
        )
        self._delete = f"DELETE FROM {table} {where} RETURNING 1"
        self._list = f"SELECT consumer, stream, shard, position FROM {table}"

    def create_table(self) -> Statement:
        return Statement(self._create, writes=True)

    def select(self, key: OffsetKey, *, for_save: bool) -> Statement:
        return Statement(self._select + " FOR UPDATE" * for_save, _key(key))

    def insert(self, key: OffsetKey, new: Stored) -> Statement:
        return Statement(self._insert, (new.position, new.epoch, *_key(key)), writes=True)

    def update(self, key: OffsetKey, stored: Stored, new: Stored) -> Statement:
        values = (new.position, new.epoch, *_key(key), stored.position)
        return Statement(self._update, values, writes=True)

    def advance(self, key: OffsetKey, expected: int, position: int) -> Statement:
        return Statement(self._advance, (position, *_key(key), expected), writes=True)

    def delete(self, key: OffsetKey) -> Statement:
        return Statement(self._delete, _key(key), writes=True)

    def list_all(self, consumer: str | None) -> Statement:
        if consumer is None:
            return Statement(self._list)
        return Statement(f"{self._list} WHERE consumer = %s", (consumer,))

    def shard(self, value: Value) -> int:
        return _integer(value)


def load(dialect: Dialect, key: OffsetKey, epoch: str | None) -> Steps[int | None]:
    check_key(key)
    check_epoch(epoch)
    rows = yield dialect.select(key, for_save=False)
    return current(key, _stored(rows), epoch)


def save(dialect: Dialect, key: OffsetKey, wanted: Wish) -> Steps[CommitInfo]:
    check_key(key)
    position, expected, rewind, epoch = wanted
    # The usual case of exactly-once needs one statement; any refusal is found out below.
    if (
        isinstance(expected, int)
        and goes_on(expected, position, rewind, epoch)
        and (yield from _ask(key, dialect.advance(key, expected, position)))
    ):
        return saved(key, Stored(expected), Stored(position))
    while True:
        stored = _stored((yield from _ask(key, dialect.select(key, for_save=True))))
        new = decide(key, stored, wanted)
        if new is None or (yield from _write(dialect, key, stored, new)):
            return saved(key, stored, new)


def save_many(dialect: Dialect, wanted: Mapping[OffsetKey, Wish]) -> Steps[list[CommitInfo]]:
    """All keys are checked before the first is written; in order, so that rows lock in order."""
    before, after = {}, {}
    for key in sorted(wanted):
        before[key] = _stored((yield from _ask(key, dialect.select(key, for_save=True))))
        after[key] = decide(key, before[key], wanted[key])
    infos = {}
    for key, new in after.items():
        if new is None or (yield from _write(dialect, key, before[key], new)):
            infos[key] = saved(key, before[key], new)
        else:
            infos[key] = yield from save(dialect, key, wanted[key])
    return [infos[key] for key in wanted]


def delete(dialect: Dialect, key: OffsetKey) -> Steps[bool]:
    check_key(key)
    rows = yield dialect.delete(key)
    return bool(rows)


def list_all(dialect: Dialect, consumer: str | None) -> Steps[dict[OffsetKey, int]]:
    check_consumer(consumer)
    rows = yield dialect.list_all(consumer)
    return {
        OffsetKey(str(name), str(stream), dialect.shard(shard)): _integer(position)
        for name, stream, shard, position in rows
    }


def create_table(dialect: Dialect) -> Steps[None]:
    yield dialect.create_table()


def _write(
    dialect: Dialect, key: OffsetKey, stored: Stored | None, new: Stored
) -> Steps[Sequence[Row]]:
    """One row if the position was still `stored`."""
    if stored is None:
        return (yield from _ask(key, dialect.insert(key, new)))
    return (yield from _ask(key, dialect.update(key, stored, new)))


def _ask(key: OffsetKey, statement: Statement) -> Steps[Sequence[Row]]:
    try:
        return (yield statement)
    except LostRace as lost:
        raise OffsetConflict(key, "what this transaction sees", "a newer position") from lost


def _stored(rows: Sequence[Row]) -> Stored | None:
    if not rows:
        return None
    position, epoch = rows[0]
    return Stored(_integer(position), None if epoch is None else str(epoch))


def _integer(value: Value) -> int:
    assert value is not None  # the columns are NOT NULL
    return int(value)


def _key(key: OffsetKey) -> tuple[Value, ...]:
    return key.consumer, key.stream, key.shard


def _sqlite_key(key: OffsetKey) -> tuple[Value, ...]:
    return key.consumer, key.stream, key.shard if key.shard < 2**63 else key.shard - 2**64


def _sqlite_new(new: Stored) -> tuple[Value, ...]:
    return _digits(new.position), new.epoch, SYSTEM.wall_ms()


def _digits(position: int) -> str:
    return str(position).zfill(DIGITS)
