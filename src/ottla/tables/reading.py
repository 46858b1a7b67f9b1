"""A topic pinned for readers: one snapshot of its table, the log's ends, and the tail as Arrow.

- The pointer is read before the ends of the log, so that the cut is never beyond the end.
- A topic without a pointer is its log alone, with the columns of a raw table.
- The tail is what is committed, converted as the table's worker would: records of aborted
  transactions are not in it, nor those that would become dead letters.
- `at` by time is the first record at or after it: in the log, or in the table where the log no
  longer has it.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.offsets import OffsetCalls
from ottla.client.cluster.cluster import API_TIMEOUT, Client
from ottla.client.reader.reader import Reader
from ottla.client.reader.types import Timestamp
from ottla.client.security import PLAINTEXT
from ottla.metadata.config.table_keys import PREFIX
from ottla.tables.errors import (
    NoSuchTopic,
    NoTable,
    TableError,
    TailStuck,
    TailTooLarge,
    WrongPointer,
)
from ottla.tables.format import META_COLUMNS
from ottla.tables.names import topic_id_text
from ottla.tables.pointer import read_pointers
from ottla.tables.settings import topic_settings
from ottla.tables.views import Choice, Log, parse_offsets, parse_time, view
from ottla.wire.columns import COLUMNS, COLUMNS_WITHOUT_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ottla.client.cluster.view import Topic
    from ottla.client.security import Security
    from ottla.tables.format import Snapshot
    from ottla.tables.pointer import Pointer
    from ottla.tables.settings import TopicSettings
    from ottla.tables.views import TableView

    At = str | datetime | Mapping[str, int] | Mapping[int, int]

LOG: Final = logging.getLogger("ottla.tables")

TAIL_BYTES: Final = 1 << 30
"""The largest tail that is held in memory: as much as a laptop has to spare."""

QUIET_SECONDS: Final = 60.0
"""How long a leader may have nothing for a tail that it said it has."""

BATCH_ROWS: Final = 32_768

_RAW_NAMES: Final = ["value", *META_COLUMNS]


@dataclass(frozen=True, slots=True)
class Pinned:
    """A view, and what reading it takes: the table's columns, and the id of the topic."""

    view: TableView
    columns: pa.Schema
    topic_id: bytes | None = None
    settings: TopicSettings | None = None


async def pin(
    bootstrap: str | Sequence[str],
    topic: str,
    *,
    at: At | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    tail: bool = True,
    accept_loss: bool = False,
    security: Security = PLAINTEXT,
    api_timeout: float = API_TIMEOUT,
) -> Pinned:
    """What a reader of the topic sees now."""
    # Wrong times are refused before anything is sent.
    first = None if since is None else parse_time("since", since)
    last = None if until is None else parse_time("until", until)
    ends = None if at is None else _parse_at(at)
    async with Client(
        bootstrap, client_id="ottla-table", security=security, api_timeout=api_timeout
    ) as client:
        # Brokers that cannot be reached are told within `api_timeout`.
        await client.retry(lambda: client.refresh([topic]))
        pointers = await read_pointers(bootstrap, security=security)
        found = None
        if tail or topic not in pointers:
            found = await existing_topic(client, topic)
        settings = None if found is None else await _settings(client, topic)
        archive, columns = await asyncio.to_thread(_opened, topic, pointers.get(topic), settings)
        if archive is None and not tail:
            raise _no_table(topic)
        if archive is None:
            LOG.warning("%s; all of it is read from the log", _no_table(topic))
        log = await log_of(client, found) if found is not None else None
        if ends is not None and not isinstance(ends, dict):
            ends = await _offsets_at(client, topic, ends, archive, log)
    seen = view(topic, archive, log, Choice(ends, first, last), accept_loss=accept_loss)
    if found is None:
        return Pinned(seen, columns)
    if seen.tail and settings is None and columns.names != _RAW_NAMES:
        raise TableError(
            f"the table of {topic!r} has typed columns, and its broker does not know how values "
            "become these: tail=False reads the table"
        )
    return Pinned(seen, columns, found.id, settings)


async def _settings(client: Client, topic: str) -> TopicSettings | None:
    """How the topic's worker makes rows; None if the broker does not say."""
    entries = await ConfigCalls(client).describe_configs("topic", topic)
    return topic_settings(
        topic,
        {
            one.name: one.value
            for one in entries
            if one.name.startswith(PREFIX) and one.value is not None
        },
    )


def _parse_at(at: At) -> dict[int, int] | datetime:
    if isinstance(at, Mapping):
        return parse_offsets("at", at)
    return parse_time("at", at)


def _no_table(topic: str) -> NoTable:
    return NoTable(
        f"topic {topic!r} has no table yet: set ottla.table.enable=true and run `ottla table run`"
    )


def _opened(
    topic: str, pointer: Pointer | None, settings: TopicSettings | None
) -> tuple[Snapshot | None, pa.Schema]:
    """The snapshot and the table's columns; without a pointer those that it would have."""
    if pointer is None:
        from ottla.tables.converting import Converter, raw_columns

        return None, raw_columns() if settings is None else Converter(settings).columns
    from ottla.tables.iceberg import open_snapshot

    try:
        found = open_snapshot(pointer.metadata_location)
    except FileNotFoundError:
        raise WrongPointer(
            f"the pointer of {topic!r} names {pointer.metadata_location}, which is gone; "
            f"`ottla table run --topics {topic} --once` publishes a new one"
        ) from None
    return found, found.columns


async def existing_topic(client: Client, topic: str) -> Topic:
    """The topic; `NoSuchTopic` names the nearest ones."""
    view = await client.retry(lambda: client.refresh([topic]))
    if topic in view.topics:
        return view.topics[topic]
    everything = await client.retry(lambda: client.refresh(None))
    near = difflib.get_close_matches(topic, everything.topics, n=3)
    meant = f"; did you mean {', '.join(near)}?" if near else ""
    raise NoSuchTopic(f"there is no topic {topic!r}{meant}")


async def log_of(client: Client, topic: Topic) -> Log:
    """Where the partitions of a topic start and end now."""
    calls = OffsetCalls(client)
    ends = await calls.list_offsets([topic.name], isolation_level="read_committed")
    starts = await calls.list_offsets([topic.name], "earliest")
    return Log(
        topic_id_text(topic.id),
        {one.partition: found.offset for one, found in starts.items() if one in ends},
        {one.partition: found.offset for one, found in ends.items() if one in starts},
    )


async def _offsets_at(
    client: Client, topic: str, time: datetime, archive: Snapshot | None, log: Log | None
) -> dict[int, int]:
    """The first offset at or after a time in each partition, else its end."""
    found: dict[int, int] = {} if archive is None else dict(archive.position)
    below = dict(found)
    if log is not None:
        listed = await OffsetCalls(client).list_offsets(
            [(topic, number) for number in log.ends],
            Timestamp(max(int(time.timestamp() * 1000), 0)),
            isolation_level="read_committed",
        )
        for one, at in listed.items():
            end = log.ends[one.partition]
            found[one.partition] = min(at.offset, end) if at.offset >= 0 else end
        # The log knows all records from its start on; what is older is known to the table alone.
        below = dict(log.starts)
    if archive is not None:
        from ottla.tables.archive import first_offsets_at

        older = await asyncio.to_thread(
            first_offsets_at, archive.files, archive.columns, time, below
        )
        found |= {one: min(offset, found.get(one, offset)) for one, offset in older.items()}
    return found


async def read_tail(
    bootstrap: str | Sequence[str],
    pinned: Pinned,
    *,
    max_bytes: int = TAIL_BYTES,
    security: Security = PLAINTEXT,
    api_timeout: float = API_TIMEOUT,
) -> list[pa.RecordBatch]:
    """The rows of the tail, partition by partition in the order of offsets."""
    found: dict[int, list[pa.RecordBatch]] = {one.partition: [] for one in pinned.view.tail}
    if not found:
        return []
    topic = pinned.view.topic
    settings = pinned.settings
    convert = await asyncio.to_thread(_converter, pinned)
    held = 0
    async with Reader(
        bootstrap,
        topic,
        start={one.partition: one.first for one in pinned.view.tail},
        stop={one.partition: one.end for one in pinned.view.tail},
        columns=COLUMNS if settings is None or settings.headers else COLUMNS_WITHOUT_HEADERS,
        isolation_level="read_committed",
        max_batch_rows=BATCH_ROWS,
        topic_id=pinned.topic_id,
        client_id="ottla-table",
        security=security,
        api_timeout=api_timeout,
    ) as reader:
        while (batch := await _next(reader, topic)) is not None:
            rows = await asyncio.to_thread(convert, batch)
            held += rows.nbytes
            if held > max_bytes:
                raise TailTooLarge(
                    f"the tail of {topic!r} is larger than {max_bytes:,} bytes: let its table "
                    "catch up (ottla table run), read with tail=False, or raise max_tail_bytes"
                )
            found[batch.column("partition")[0].as_py()].append(rows)
    return [rows for number in sorted(found) for rows in found[number]]


def _converter(pinned: Pinned) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Records to rows, as the topic's worker makes them."""
    from ottla.tables.converting import Converter, raw_rows

    columns, settings = pinned.columns, pinned.settings
    if settings is None:
        return lambda batch: raw_rows(batch, columns)
    converter = Converter(settings)
    return lambda batch: converter.convert(batch, columns).rows


async def _next(reader: Reader, topic: str) -> pa.RecordBatch | None:
    try:
        async with asyncio.timeout(QUIET_SECONDS):
            return await anext(reader)
    except StopAsyncIteration:
        return None
    except TimeoutError:
        raise TailStuck(
            f"nothing came for {QUIET_SECONDS:g} s from {topic!r}, read up to {reader.positions}; "
            "see that its leaders are up"
        ) from None
