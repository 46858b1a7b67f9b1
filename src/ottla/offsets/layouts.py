"""How the lock-file store lays out its files: names and bytes, without I/O.

`V1` is Ottla's own. A data file holds a line for its key,

    v1 <position> <epoch or -> <quoted stream> <shard> <crc32 of all before its space>

and, if it was saved together with others, a line for each of them: the files of one group commit
are links to one file, so that 64 keys cost one fsync. A reader takes the line of its own key, and
a file with any line that is not right is corrupt.

Keys that are saved again get a block of lines added, one for each key of the file, marked `+v1`;
the last block counts. Adding changes nothing that was there, so a crash leaves the block, or a part
of it, or zeros where a part should be: what is such a rest of a block is ignored, and the block
before it counts, for all its keys. Who adds the first block syncs the directory before, so that a
file with a `+` line is known to be recorded there.

`Lance` is the layout of the LANCE client: a decimal number, keys by numeric ids.

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

from ottla.offsets.errors import InvalidOffsetArgument
from ottla.offsets.rules import Stored
from ottla.offsets.types import MAX_EPOCH_CHARS, MAX_NAME_BYTES, MAX_POSITION, OffsetKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OFFSET_SUFFIX: Final = ".offset"
LOCK_SUFFIX: Final = ".lock"
TEMP_SUFFIX: Final = ".tmp"
MAX_PART: Final = 180
"""File systems take names of 255 bytes; shard, process id and suffixes need room too."""
KEPT_OF_LONG_PART: Final = 140
LONG_MARK: Final = "~"
"""Percent-encoding never produces it, so shortened names are recognizable."""
MAX_GROUP: Final = 64
"""Most keys in one file; loading one key reads all of them."""
MAX_LINE: Final = 3 * MAX_NAME_BYTES + MAX_EPOCH_CHARS + 100
MAX_FILE_BYTES: Final = MAX_GROUP * MAX_LINE

MAX_GROWN_BYTES: Final = 4 * 1024
"""Of a single key's file: a page, and some hundred saves."""
MAX_GROWN_GROUP_BYTES: Final = 32 * 1024
"""Of a group's file: some fifteen blocks of 64 keys, and still one read for who loads a key."""
SECTOR_BYTES: Final = 512
"""What every disk writes whole or not at all."""
ADDED: Final = "+"

_SAFE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_QUOTED: Final = [chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in range(256)]
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,38}")
_ZEROS: Final = re.compile(rb"\0+")
_GROWTH: Final = re.compile(rb"\n[+\0]")
_LANCE_NAME: Final = re.compile(r"topic-(0|[1-9][0-9]{0,9})-consumer-(0|[1-9][0-9]{0,19})\.offset")
_LANCE_MAX_TOPIC: Final = 2**32 - 1
_LANCE_MAX_CONSUMER: Final = 2**64 - 1
_LANCE_MAX_POSITION: Final = 2**64 - 1


class Malformed(ValueError):
    """A malformed data file; the text is the reason."""


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


_key = lru_cache(maxsize=1024)(OffsetKey)


class Addition(NamedTuple):
    """A block to add to a file; `is_first` if no other has been added to it."""

    block: bytes
    is_first: bool


class _File(NamedTuple):
    """A parsed file: stream, shard and position of each stem."""

    entries: dict[str, tuple[str, int, Stored]]
    has_grown: bool
    is_cut: bool


class V1:
    """Ottla's own file layout: a directory per consumer, any names, epochs, checksums."""

    shares_files: Final = True

    def directory(self, consumer: str) -> str:
        """Internal: the directory of a consumer."""
        return part(consumer)

    def stem(self, key: OffsetKey) -> str:
        """Internal: the file name of a key, without its suffix."""
        return f"{part(key.stream)}.{key.shard}"

    def temporary(self, stem: str, unique: str) -> str:
        """Internal: a temporary file name; `unique` is `<process id>.<number>`."""
        return f".{stem}.{unique}{TEMP_SUFFIX}"

    def stem_of_temporary(self, name: str) -> str | None:
        """Internal: the stem of a temporary file name; None for other files."""
        if not name.startswith(".") or not name.endswith(TEMP_SUFFIX):
            return None
        stem, *unique = name[1:].rsplit(".", 3)
        return stem if len(unique) == 3 else None

    def encode(self, entries: Sequence[tuple[OffsetKey, Stored]]) -> bytes:
        """Internal: the bytes of a data file."""
        return b"".join([_v1_line("v1", key, stored) for key, stored in entries])

    def addition(
        self, data: bytes, entries: Mapping[str, tuple[OffsetKey, Stored]]
    ) -> Addition | None:
        """Internal: the block to append to a file with this data; None: replace the file."""
        try:
            file = _v1_file(data)
        except Malformed:
            return None
        if file.is_cut or file.entries.keys() != entries.keys():
            return None
        block = b"".join([_v1_line(ADDED + "v1", *entries[stem]) for stem in file.entries])
        if len(data) + len(block) > _most_grown(len(entries)):
            return None
        return Addition(block, is_first=not file.has_grown)

    def decode(self, consumer: str, stem: str, data: bytes) -> tuple[OffsetKey, Stored]:
        """Internal: the entry of the file with this stem; raises `Malformed`."""
        own = _v1_file(data).entries.get(stem)
        if own is None:
            raise Malformed("it has no line for its own key")
        stream, shard, stored = own
        try:
            return _key(consumer, stream, shard), stored
        except ValueError as error:
            raise Malformed(str(error)) from None


def _most_grown(keys: int) -> int:
    return MAX_GROWN_BYTES if keys == 1 else MAX_GROWN_GROUP_BYTES


# All files of a group commit have the same bytes, and are parsed once where they are read together.
@lru_cache(maxsize=4)
def _v1_file(data: bytes) -> _File:
    growth = _GROWTH.search(data)
    first = data[: growth.start() + 1] if growth else data
    if not first.endswith(b"\n"):
        raise Malformed("a line of it has no end" if data else "it is empty")
    keys = first.count(b"\n")
    added = data[len(first) :]
    # A block that has zeros in it, or too few lines, is the rest of one.
    whole = added.partition(b"\0")[0].count(b"\n") // keys * keys
    *blocks, rest = added.split(b"\n", whole)
    if added and len(data) > _most_grown(keys):
        raise Malformed(f"it has grown beyond {_most_grown(keys)} bytes")
    if rest:
        _check_rest(rest, len(data) - len(rest), keys)
    version = ADDED + "v1" if blocks else "v1"
    if data.count(b"\n+v1 ", len(first) - 1, len(data) - len(rest)) != whole:
        raise Malformed("a line in the middle of the file is invalid")
    # Apart from that, the content of older blocks does not matter: it changes no position.
    lines = blocks[-keys:] or first[:-1].split(b"\n")
    found = [_v1_entry(version, line) for line in lines]
    entries = {
        f"{part(stream)}.{shard}": (stream, shard, stored) for stream, shard, stored in found
    }
    if len(entries) != keys:
        raise Malformed("two lines of it are for one key")
    return _File(entries, bool(blocks), bool(rest))


def _check_rest(rest: bytes, start: int, keys: int) -> None:
    """Check that the rest is a torn block; zeros come in whole sectors."""
    *whole, last = rest.partition(b"\0")[0].split(b"\n")
    for line in whole:
        _v1_entry(ADDED + "v1", line)
    ends = [zeros.end() for zeros in _ZEROS.finditer(rest)]
    sectors = all(end == len(rest) or (start + end) % SECTOR_BYTES == 0 for end in ends)
    if last[:1] not in {b"", b"+"} or rest.count(b"\n") > keys or not sectors:
        raise Malformed("its last line has no end")


def _v1_line(version: str, key: OffsetKey, stored: Stored) -> bytes:
    fields = [version, str(stored.position), stored.epoch or "-", quote(key.stream)]
    line = " ".join([*fields, str(key.shard)]).encode()
    return b"%b %08x\n" % (line, zlib.crc32(line))


def _v1_entry(version: str, line: bytes) -> tuple[str, int, Stored]:
    covered, _, crc = line.rpartition(b" ")
    if crc != b"%08x" % zlib.crc32(covered):
        raise Malformed("a line does not match its checksum")
    try:
        fields = covered.decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise Malformed("it is not ASCII text") from None
    if fields[0] != version:
        raise Malformed(f"the version of a line is {fields[0]!r}, it should be {version!r}")
    if len(fields) != 5:
        raise Malformed(f"a line has {len(fields) + 1} fields, not 6")
    _, position, epoch, stream, shard = fields
    stored = Stored(number(position), None if epoch == "-" else epoch)
    return unquote(stream), number(shard), stored


@dataclass(frozen=True)
class Lance:
    """The LANCE client's layout: `stream` is a topic id, `consumer` a consumer id, shard 0.

    It has no room for epochs: they are not stored. Its own client reads positions up to 2^64-1, so
    larger ones are refused.
    """

    name: str
    shares_files = False

    def __post_init__(self) -> None:
        if self.name in {"", ".", ".."} or "/" in self.name or "\0" in self.name:
            raise InvalidOffsetArgument(f"{self.name!r} is not a valid directory name")

    def directory(self, _consumer: str) -> str:
        """Internal: the directory of the store."""
        return self.name

    def stem(self, key: OffsetKey) -> str:
        """Internal: the file name of a key, without its suffix."""
        name = f"topic-{key.stream}-consumer-{key.consumer}"
        if key.shard != 0 or self.key(name + OFFSET_SUFFIX) != key:
            raise InvalidOffsetArgument(
                f"{key} does not fit the LANCE layout: the stream must be a decimal 32-bit id, "
                "the consumer a decimal 64-bit id, the shard 0"
            )
        return name

    def key(self, file_name: str) -> OffsetKey | None:
        """Internal: the key of a data file; None for other files."""
        match = _LANCE_NAME.fullmatch(file_name)
        if match is None:
            return None
        topic, consumer = match.groups()
        if int(topic) > _LANCE_MAX_TOPIC or int(consumer) > _LANCE_MAX_CONSUMER:
            return None
        return OffsetKey(consumer, topic)

    def temporary(self, stem: str, _unique: str) -> str:
        """Internal: a temporary file name."""
        return f"{stem}{OFFSET_SUFFIX}{TEMP_SUFFIX}"

    def stem_of_temporary(self, name: str) -> str | None:
        """Internal: the stem of a temporary file name; None for other files."""
        suffix = OFFSET_SUFFIX + TEMP_SUFFIX
        return name.removesuffix(suffix) if name.endswith(suffix) else None

    def encode(self, entries: Sequence[tuple[OffsetKey, Stored]]) -> bytes:
        """Internal: the bytes of a data file."""
        [(_, stored)] = entries
        if stored.position > _LANCE_MAX_POSITION:
            raise InvalidOffsetArgument(
                f"position is {stored.position}, the LANCE layout holds up to 2^64-1: its own "
                "client could not read more; use another layout"
            )
        return b"%d\n" % stored.position

    def addition(self, _data: bytes, _entries: object) -> Addition | None:
        """Internal: None: files of this layout are always replaced."""
        return None

    def decode(self, _consumer: str, stem: str, data: bytes) -> tuple[OffsetKey, Stored]:
        """Internal: the entry of the file with this stem."""
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
