"""Converts checkpoints of the `kafka` format to `ottla`, and back.

Both keep the same offsets, so a checkpoint moves as it is once its second batch is planned. Before
that they keep the start of the query in different places: `kafka` in a file `sources/N/0`, `ottla`
in the end of the first batch. Spark compares the text of offsets to find out whether they are new,
so they are written exactly as the format writes them. Spark's local files have checksums beside
them (`.NAME.crc`); the checksums of changed files are removed, and Spark then skips the check.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.spark.offsets import INITIAL_KEY
from ottla.spark.pipelines.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMATS: Final = ("kafka", "ottla")
_HEADER_LINES: Final = 2
_KAFKA_HEADER: Final = b"\0v1\n"


class Batch(NamedTuple):
    """One batch of a checkpoint, with a line of offsets for each source."""

    number: int
    is_committed: bool
    planned_at: float
    offsets: Sequence[Any]


def batches(directory: Path) -> list[Batch]:
    """The batches of a checkpoint, oldest first; Spark keeps about the last hundred."""
    planned = directory / "offsets"
    if not planned.is_dir():
        raise DefinitionError(f"{directory} is not a checkpoint: it has no directory offsets")
    numbers = sorted(int(one.name) for one in planned.iterdir() if one.name.isdecimal())
    found = []
    for number in numbers:
        file = planned / str(number)
        lines = file.read_text().splitlines()[_HEADER_LINES:]
        committed = (directory / "commits" / str(number)).exists()
        offsets = [_parsed(line, file) for line in lines]
        found.append(Batch(number, committed, file.stat().st_mtime, offsets))
    return found


def convert(directory: Path, to: str) -> list[Path]:
    """Convert a checkpoint to the format `to`; returns the changed files."""
    if to not in FORMATS:
        raise DefinitionError(f"--to is {' or '.join(FORMATS)}, not {to!r}")
    found = batches(directory)
    for offset in (one for batch in found for one in batch.offsets):
        if isinstance(offset, dict) and "ranges" in offset:
            raise DefinitionError(
                f"{directory} belongs to a query on a share group, which the kafka format has not"
            )
    if not found or found[0].number:
        return []  # Spark does not need the start any more
    first = found[0]
    convert_one = _to_kafka if to == "kafka" else _to_ottla
    changed: list[Path] = []
    offsets = [
        convert_one(directory / "sources" / str(number) / "0", offset, changed)
        for number, offset in enumerate(first.offsets)
    ]
    if offsets != list(first.offsets):
        file = directory / "offsets" / "0"
        header = file.read_text().splitlines()[:_HEADER_LINES]
        lines = [_line(one) if to == "kafka" else json.dumps(one) for one in offsets]
        _write(file, "\n".join([*header, *lines]).encode(), changed)
    return changed


def _to_kafka(start: Path, offset: Any, changed: list[Path]) -> Any:
    if not isinstance(offset, dict) or INITIAL_KEY not in offset:
        return offset
    if not start.exists():
        start.parent.mkdir(parents=True, exist_ok=True)
        _write(start, _KAFKA_HEADER + _line(offset[INITIAL_KEY]).encode(), changed)
    return {topic: places for topic, places in offset.items() if topic != INITIAL_KEY}


def _to_ottla(start: Path, offset: Any, changed: list[Path]) -> Any:
    if not isinstance(offset, dict) or INITIAL_KEY in offset or not start.exists():
        return offset
    return {**offset, INITIAL_KEY: json.loads(start.read_bytes().removeprefix(_KAFKA_HEADER))}


def _write(file: Path, content: bytes, changed: list[Path]) -> None:
    """Replace the file atomically."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(content)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    new.rename(file)
    changed.append(file)


def _line(offset: Any) -> str:
    """The text that the kafka format writes."""
    return json.dumps(offset, separators=(",", ":"))


def _parsed(line: str, file: Path) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise DefinitionError(f"{file} is damaged: {line[:80]!r} is not JSON") from None
