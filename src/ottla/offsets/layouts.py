"""How the lock-file store lays out its files: names and bytes, without I/O.

`V1` is Ottla's own. A data file holds a line for its key,

    v1 <position> <epoch or -> <quoted stream> <shard> <crc32 of all before its space>

and, if it was saved together with others, a line for each of them: the files of one group commit
are links to one file, so that 64 keys cost one fsync. A reader takes the line of its own key, and
a file with any line that is not right is corrupt.

A key that is saved again gets a line added, marked `+v1`; the last line counts. Adding changes
nothing that was there, and a file that has been added to stays within the bytes a disk writes as
one, so that a crash leaves a line, or the beginning of one, or zeros. Only such a rest of a `+`
line is ignored. Who adds the first line syncs the directory before, so that a file with a `+` line
is known to be recorded there.

`Lance` is the layout of the LANCE client: a
decimal number, keys by numeric ids.

Names become file names by percent-encoding everything but [a-z0-9_-]: nothing leaves the directory
and nothing depends on whether the file system tells cases apart.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from ottla.offsets.rules import Stored
from ottla.offsets.types import MAX_EPOCH_CHARS, MAX_NAME_BYTES, MAX_POSITION, OffsetKey

if TYPE_CHECKING:
    from collections.abc import Sequence

OFFSET_SUFFIX: Final = ".offset"
LOCK_SUFFIX: Final = ".lock"
TEMP_SUFFIX: Final = ".tmp"
MAX_PART: Final = 180
"""File systems take names of 255 bytes; shard, process id and suffixes need room too."""
KEPT_OF_LONG_PART: Final = 140
LONG_MARK: Final = "~"
"""Percent-encoding never leaves one, so a shortened part cannot be taken for a whole one."""
MAX_GROUP: Final = 64
"""Keys in one file: whoever loads one of them reads them all."""
MAX_LINE: Final = 3 * MAX_NAME_BYTES + MAX_EPOCH_CHARS + 100
MAX_FILE_BYTES: Final = MAX_GROUP * MAX_LINE

MAX_GROWN_BYTES: Final = 512
"""A sector: the most that every disk writes whole or not at all."""
ADDED: Final = "+"

_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_QUOTED: Final = [chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in range(256)]
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,38}")
_CUT: Final = re.compile(rb"(\+[^\0\n]*)?\0*")
_LANCE_NAME: Final = re.compile(r"topic-(0|[1-9][0-9]{0,9})-consumer-(0|[1-9][0-9]{0,19})\.offset")
_LANCE_MAX_TOPIC: Final = 2**32 - 1
_LANCE_MAX_CONSUMER: Final = 2**64 - 1


class Malformed(ValueError):
    """The bytes of a data file are not what the layout says; the text is the reason."""


# A consumer saves the same names again and again.
@lru_cache(maxsize=1024)
def quote(name: str) -> str:
    """The name in characters that are safe in any file name."""
    return "".join([_QUOTED[byte] for byte in name.encode()])


@lru_cache(maxsize=1024)
def part(name: str) -> str:
    """The name as part of a file name: quoted, and shortened if it is long."""
    quoted = quote(name)
    if len(quoted) <= MAX_PART:
        return quoted
    digest = sha256(quoted.encode()).hexdigest()
    return f"{quoted[:KEPT_OF_LONG_PART]}{LONG_MARK}{digest[:32]}"


class Addition(NamedTuple):
    """A line to add to a file; `is_first` if no other has been added to it."""

    line: bytes
    is_first: bool


class V1:
    """Ottla's own layout: a directory per consumer, free names, epochs, checksums."""

    shares_files: Final = True

    def directory(self, consumer: str) -> str:
        return part(consumer)

    def stem(self, key: OffsetKey) -> str:
        return f"{part(key.stream)}.{key.shard}"

    def temporary(self, stem: str, unique: str) -> str:
        """`unique` is `<process id>.<number>`."""
        return f".{stem}.{unique}{TEMP_SUFFIX}"

    def stem_of_temporary(self, name: str) -> str | None:
        if not name.startswith(".") or not name.endswith(TEMP_SUFFIX):
            return None
        stem, *unique = name[1:].rsplit(".", 3)
        return stem if len(unique) == 3 else None

    def encode(self, entries: Sequence[tuple[OffsetKey, Stored]]) -> bytes:
        return b"".join([_v1_line("v1", key, stored) for key, stored in entries])

    def addition(self, stem: str, data: bytes, entry: tuple[OffsetKey, Stored]) -> Addition | None:
        """What to add to the file of a key, which has this data; None if it is to be replaced."""
        line = _v1_line(ADDED + "v1", *entry)
        if not data.endswith(b"\n") or len(data) + len(line) > MAX_GROWN_BYTES:
            return None
        try:
            if [*_v1_entries(data)] != [stem]:
                return None
        except Malformed:
            return None
        return Addition(line, is_first=data.count(b"\n") == 1)

    def decode(self, consumer: str, stem: str, data: bytes) -> tuple[OffsetKey, Stored]:
        """The entry of the file with this stem. Malformed if anything is wrong with any line."""
        own = _v1_entries(data).get(stem)
        if own is None:
            raise Malformed("it has no line for its own key")
        stream, shard, stored = own
        try:
            return OffsetKey(consumer, stream, shard), stored
        except ValueError as error:
            raise Malformed(str(error)) from None


# All files of a group commit have the same bytes, and are parsed once where they are read together.
@lru_cache(maxsize=4)
def _v1_entries(data: bytes) -> dict[str, tuple[str, int, Stored]]:
    whole, _, rest = data.rpartition(b"\n")
    if not whole:
        raise Malformed("its first line has no end" if data else "it is empty")
    if rest and not (len(data) <= MAX_GROWN_BYTES and _CUT.fullmatch(rest)):
        raise Malformed("its last line has no end")
    entries: dict[str, tuple[str, int, Stored]] = {}
    for line in whole.split(b"\n"):
        stream, shard, stored = _v1_entry(line)
        stem = f"{part(stream)}.{shard}"
        if line.startswith(ADDED.encode()) != (stem in entries):
            raise Malformed("a key's first line, and no other, is without a +")
        entries[stem] = stream, shard, stored
    return entries


def _v1_line(version: str, key: OffsetKey, stored: Stored) -> bytes:
    fields = [version, str(stored.position), stored.epoch or "-", quote(key.stream)]
    line = " ".join([*fields, str(key.shard)]).encode()
    return b"%b %08x\n" % (line, zlib.crc32(line))


# A save reads the lines again that the saves before it have added.
@lru_cache(maxsize=128)
def _v1_entry(line: bytes) -> tuple[str, int, Stored]:
    try:
        covered, _, crc = line.decode("ascii").rpartition(" ")
    except UnicodeDecodeError:
        raise Malformed("it is not ASCII text") from None
    if crc != f"{zlib.crc32(covered.encode()):08x}":
        raise Malformed("a line does not match its checksum")
    fields = covered.split(" ")
    if fields[0].removeprefix(ADDED) != "v1":
        raise Malformed(f"its version is {fields[0]!r}, known is 'v1'")
    if len(fields) != 5:
        raise Malformed(f"a line has {len(fields) + 1} fields, not 6")
    _, position, epoch, stream, shard = fields
    stored = Stored(number(position), None if epoch == "-" else epoch)
    return unquote(stream), number(shard), stored


@dataclass(frozen=True)
class Lance:
    """The LANCE client's layout: `stream` is a topic id, `consumer` a consumer id, shard 0.

    It has no room for epochs: they are not stored. Its own client reads positions up to 2^64-1.
    """

    name: str
    shares_files = False

    def __post_init__(self) -> None:
        if self.name in {"", ".", ".."} or "/" in self.name or "\0" in self.name:
            raise ValueError(f"{self.name!r} cannot be the name of a directory")

    def directory(self, _consumer: str) -> str:
        return self.name

    def stem(self, key: OffsetKey) -> str:
        name = f"topic-{key.stream}-consumer-{key.consumer}"
        if key.shard != 0 or self.key(name + OFFSET_SUFFIX) != key:
            raise ValueError(
                f"{key} does not fit the LANCE layout: the stream must be a decimal 32-bit id, "
                "the consumer a decimal 64-bit id, the shard 0"
            )
        return name

    def key(self, file_name: str) -> OffsetKey | None:
        """The key of a data file; None if it is not one."""
        match = _LANCE_NAME.fullmatch(file_name)
        if match is None:
            return None
        topic, consumer = match.groups()
        if int(topic) > _LANCE_MAX_TOPIC or int(consumer) > _LANCE_MAX_CONSUMER:
            return None
        return OffsetKey(consumer, topic)

    def temporary(self, stem: str, _unique: str) -> str:
        return f"{stem}{OFFSET_SUFFIX}{TEMP_SUFFIX}"

    def stem_of_temporary(self, name: str) -> str | None:
        suffix = OFFSET_SUFFIX + TEMP_SUFFIX
        return name.removesuffix(suffix) if name.endswith(suffix) else None

    def encode(self, entries: Sequence[tuple[OffsetKey, Stored]]) -> bytes:
        [(_, stored)] = entries
        return b"%d\n" % stored.position

    def addition(self, _stem: str, _data: bytes, _entry: object) -> Addition | None:
        return None

    def decode(self, _consumer: str, stem: str, data: bytes) -> tuple[OffsetKey, Stored]:
        key = self.key(stem + OFFSET_SUFFIX)
        if key is None:
            raise Malformed("its name is not of the LANCE layout")
        try:
            text = data.decode("ascii").strip()
        except UnicodeDecodeError:
            raise Malformed("it is not ASCII text") from None
        return key, Stored(number(text))


def number(text: str) -> int:
    """A decimal number without sign, leading zero or anything else, of at most 128 bits."""
    if not _NUMBER.fullmatch(text):
        raise Malformed(f"{text[:50]!r} is not a number" if text else "it is empty")
    value = int(text)
    if value > MAX_POSITION:
        raise Malformed(f"{value} is above 2^128-1")
    return value
