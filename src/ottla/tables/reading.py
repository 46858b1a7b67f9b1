"""A topic pinned for readers: one snapshot of its table, the log's ends, and the tail as Arrow.

- The pointer is read before the ends of the log, so that the cut is never beyond the end.
- A topic without a pointer is its log alone, with the columns of a raw table.
- The tail is what is committed, converted as the table's worker would: records of aborted
  transactions are not in it, nor those that would become dead letters.
- The table of a topic's dead letters is read by its own name, unless a topic has it. No tail: a
  record is a letter when the worker has found it to be one.
- `at` by time is the first record at or after it: in the log, or in the table where the log no
  longer has it.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.nodes import NodeCalls
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
from ottla.tables.names import dead_letter_table, topic_id_text
from ottla.tables.pointer import read_pointers
from ottla.tables.settings import converted_by, topic_settings
from ottla.tables.stores import iceberg_properties
from ottla.tables.taking import needs_headers
from ottla.tables.views import Choice, Log, parse_offsets, parse_time, view
from ottla.wire.columns import COLUMNS, COLUMNS_WITHOUT_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ottla.client.cluster.view import Topic
    from ottla.client.security import Security
    from ottla.schemas.cache import SchemaCache
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

_CONVERSION: Final = "ottla.conversion"


@dataclass(frozen=True, slots=True)
class Pinned:
    """A view, and what reading it takes: the table's columns, and the id of the topic.

    `metadata_location` is the table's metadata file, None if the topic has no table.
    """

    view: TableView
    columns: pa.Schema
    topic_id: bytes | None = None
    settings: TopicSettings | None = None
    registry_url: str | None = None
    metadata_location: str | None = None


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
    registry_url: str | None = None,
    store: Mapping[str, str] | None = None,
) -> Pinned:
    """What a reader of the topic sees now. `registry_url` counts before what the brokers say.

    `store` are settings of the object store that has the table's files (`ottla.tables.stores`).
    """
    store = store or {}
    # Wrong times are refused before anything is sent.
    first = None if since is None else parse_time("since", since)
    last = None if until is None else parse_time("until", until)
    ends = None if at is None else _parse_at(at)
    async with Client(
        bootstrap, client_id="ottla-table", security=security, api_timeout=api_timeout
    ) as client:
        # Brokers that cannot be reached are told within `api_timeout`.
        known = await client.retry(lambda: client.refresh([topic]))
        pointers = await read_pointers(bootstrap, security=security, api_timeout=api_timeout)
        owner = _owner_of_letters(topic, pointers.values())
        if owner is not None and topic not in pointers and topic not in known.topics:
            letters = await asyncio.to_thread(_opened_letters, topic, owner, store)
            if ends is not None and not isinstance(ends, dict):
                ends = await _offsets_at(client, topic, ends, letters, None, store)
            # Holes are of the topic's table, which tells them itself.
            seen = view(topic, letters, None, Choice(ends, first, last), accept_loss=True)
            return Pinned(seen, letters.columns, metadata_location=letters.metadata_location)
        found = None
        if tail or topic not in pointers:
            found = await existing_topic(client, topic)
        settings = None if found is None else await _settings(client, topic)
        pointer = pointers.get(topic)
        if pointer is None and not tail:
            raise _no_table(topic)
        archive = None
        if pointer is not None:
            archive = await asyncio.to_thread(
                _opened, topic, pointer.topic, pointer.metadata_location, store
            )
            if found is not None and settings is None:
                settings = converted_by(topic, archive.properties.get(_CONVERSION, "{}"))
        registry = None
        if settings is not None:
            registry = await _registry(client, settings, registry_url)
        if archive is not None:
            columns = archive.columns
        else:
            columns = await asyncio.to_thread(_columns, settings, registry, security)
        if archive is None:
            LOG.warning("%s; all of it is read from the log", _no_table(topic))
        log = await log_of(client, found) if found is not None else None
        if ends is not None and not isinstance(ends, dict):
            ends = await _offsets_at(client, topic, ends, archive, log, store)
    seen = view(topic, archive, log, Choice(ends, first, last), accept_loss=accept_loss)
    place = None if archive is None else archive.metadata_location
    topic_id = None if found is None else found.id
    return Pinned(seen, columns, topic_id, settings, registry, place)


async def _registry(client: Client, settings: TopicSettings, given: str | None) -> str | None:
    """Where the schemas of the topic are; None if it needs none."""
    from ottla.tables.registries import needs_registry, registry_url

    if not needs_registry(settings):
        return None
    return await registry_url(given, NodeCalls(client).registry_url)


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


def _columns(settings: TopicSettings | None, registry: str | None, security: Security) -> pa.Schema:
    """The columns that the table of a topic would have."""
    if settings is None:
        from ottla.tables.rows import raw_columns

        return raw_columns()
    from ottla.tables.converting import Converter

    with _schemas(registry, security) as schemas:
        return Converter(settings, schemas).columns.remove_metadata()


@contextmanager
def _schemas(registry: str | None, security: Security) -> Iterator[SchemaCache | None]:
    """The schemas of a registry, if there is one."""
    if registry is None:
        yield None
        return
    from ottla.tables.registries import schemas_at

    with closing(schemas_at(registry, security)) as schemas:
        yield schemas


def _opened(name: str, topic: str, metadata_location: str, store: Mapping[str, str]) -> Snapshot:
    """The snapshot that the pointer of a topic names."""
    from ottla.tables.iceberg import open_snapshot

    try:
        return open_snapshot(metadata_location, iceberg_properties(metadata_location, store))
    except FileNotFoundError:
        raise WrongPointer(
            f"the pointer of {name!r} names {metadata_location}, which is gone; "
            f"`ottla table run --topics {topic} --once` publishes a new one"
        ) from None


def _owner_of_letters(name: str, pointers: Iterable[Pointer]) -> Pointer | None:
    """The topic whose dead letters are called so, by its own name or by that of its table."""
    for one in pointers:
        table = one.table.rpartition(".")[2]
        if name in (dead_letter_table(table), dead_letter_table(one.topic)):
            return one
    return None


def _opened_letters(name: str, owner: Pointer, store: Mapping[str, str]) -> Snapshot:
    """The dead letters of a topic, up to the position of its table."""
    if owner.dlq is None:
        raise NoTable(f"topic {owner.topic!r} has no dead letters, so there is no {name!r}")
    if owner.dlq_metadata_location is None:
        raise WrongPointer(
            f"the pointer of {owner.topic!r} does not say where its dead letters are; "
            f"`ottla table run --topics {owner.topic} --once` publishes a new one"
        )
    found = _opened(name, owner.topic, owner.dlq_metadata_location, store)
    return replace(found, position=owner.position)


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
    client: Client,
    topic: str,
    time: datetime,
    archive: Snapshot | None,
    log: Log | None,
    store: Mapping[str, str],
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
            first_offsets_at, archive.files, archive.columns, time, below, store
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
    held = 0
    with _schemas(pinned.registry_url, security) as schemas:
        convert = await asyncio.to_thread(_conversion, pinned, schemas)
        async with Reader(
            bootstrap,
            topic,
            start={one.partition: one.first for one in pinned.view.tail},
            stop={one.partition: one.end for one in pinned.view.tail},
            columns=COLUMNS
            if settings is None or needs_headers(settings)
            else COLUMNS_WITHOUT_HEADERS,
            isolation_level="read_committed",
            max_batch_rows=BATCH_ROWS,
            topic_id=pinned.topic_id,
            client_id="ottla-table",
            security=security,
            api_timeout=api_timeout,
        ) as reader:
            while (batch := await _next(reader, topic)) is not None:
                rows = await asyncio.to_thread(convert, batch)
                held += sum(one.nbytes for one in rows)
                if held > max_bytes:
                    raise TailTooLarge(
                        f"the tail of {topic!r} is larger than {max_bytes:,} bytes: let its table "
                        "catch up (ottla table run), read with tail=False, or raise max_tail_bytes"
                    )
                found[batch.column("partition")[0].as_py()] += rows
    return [rows for number in sorted(found) for rows in found[number]]


def _conversion(
    pinned: Pinned, schemas: SchemaCache | None
) -> Callable[[pa.RecordBatch], list[pa.RecordBatch]]:
    """Records to rows, as the topic's worker makes them."""
    import pyarrow as pa

    columns, settings = pinned.columns, pinned.settings
    if settings is None:
        from ottla.tables.rows import raw_rows

        return lambda batch: [raw_rows(batch, columns)]
    from ottla.tables.converting import Converter

    converter = Converter(settings, schemas)
    converter.start(columns)

    def convert(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        parts = converter.convert(batch)
        if parts[-1].waits is not None:
            raise TableError(f"{settings.topic}: {parts[-1].waits}; tail=False reads the table")
        try:
            return [one.rows(columns) for one in parts]
        except pa.ArrowInvalid as error:
            raise TableError(
                f"{settings.topic}: the log has values of a newer schema that do not fit the "
                f"table's columns yet ({error}); let its worker take them, or use tail=False"
            ) from None

    return convert


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
