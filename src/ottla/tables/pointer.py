"""Pointers: where the newest snapshot of each topic's table is, in a compacted topic.

Readers need no catalogue: they take the newest pointer of a topic and open the metadata file it
names. A pointer that is late is a smaller archive and a longer tail, never a wrong one.

A record of the topic has the topic's name as its key and JSON as its value. One that is no pointer,
or that a newer version wrote, is passed over with a warning; an older pointer counts then.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.client.admin.admin import Admin
from ottla.client.cluster.cluster import API_TIMEOUT
from ottla.client.errors import KafkaError
from ottla.client.producer.producer import Producer
from ottla.client.reader.reader import Reader
from ottla.client.security import PLAINTEXT, Security
from ottla.metadata.names import POINTER_TOPIC
from ottla.redaction import printable
from ottla.tables.errors import BadPointer, PointersUnreadable
from ottla.tables.names import dead_letter_table
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.tables.format import TableFormat, TableState
    from ottla.tables.settings import TopicSettings

VERSION: Final = 1
MAX_BYTES: Final = 1024 * 1024
"""A pointer of 10,000 partitions has 200 KB; what is longer is none."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pointer:
    """The table of a topic, one snapshot of it, and the position of that snapshot.

    `dlq` is the table of its dead letters, if it has one; pointers of older versions do not say
    where the metadata of that is.
    """

    topic: str
    topic_id: str
    table: str
    metadata_location: str
    format: str
    snapshot_id: int | None
    position: dict[int, int]
    dlq: str | None = None
    dlq_metadata_location: str | None = None


def encode_pointer(pointer: Pointer) -> bytes:
    """The value of a record."""
    return json.dumps(
        {
            "version": VERSION,
            "topic_id": pointer.topic_id,
            "table": pointer.table,
            "metadata_location": pointer.metadata_location,
            "format": pointer.format,
            "snapshot_id": pointer.snapshot_id,
            "position": {str(one): pointer.position[one] for one in sorted(pointer.position)},
            "dlq": pointer.dlq,
            "dlq_metadata_location": pointer.dlq_metadata_location,
        },
        separators=(",", ":"),
    ).encode()


def decode_pointer(topic: str, value: bytes) -> Pointer:
    """The pointer of a record; `BadPointer` if it is not one."""
    if len(value) > MAX_BYTES:
        raise BadPointer(f"a pointer has at most {MAX_BYTES} bytes, this one {len(value)}")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise BadPointer("the value is not JSON") from None
    if not isinstance(found, dict):
        raise BadPointer("the value is not a JSON object")
    if found.get("version") != VERSION:
        raise BadPointer(
            f"version {printable(found.get('version'))} is not {VERSION}; "
            "a newer Ottla may have written it"
        )
    try:
        return Pointer(
            topic,
            _text(found, "topic_id"),
            _text(found, "table"),
            _text(found, "metadata_location"),
            _text(found, "format"),
            _whole_or_none(found["snapshot_id"]),
            {int(one): _whole(offset) for one, offset in found["position"].items()},
            None if found["dlq"] is None else _text(found, "dlq"),
            None
            if found.get("dlq_metadata_location") is None
            else _text(found, "dlq_metadata_location"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadPointer(f"a field is missing or wrong: {printable(error)}") from None


async def read_pointers(
    bootstrap: str | Sequence[str],
    *,
    security: Security = PLAINTEXT,
    api_timeout: float = API_TIMEOUT,
) -> dict[str, Pointer]:
    """The newest pointer of every topic that has a table; none if there is no such topic yet.

    `PointersUnreadable` if they do not come within `api_timeout` seconds.
    """
    async with Admin(bootstrap, security=security, api_timeout=api_timeout) as admin:
        if not any(one.name == POINTER_TOPIC for one in await admin.list_topics()):
            return {}
    reader = Reader(
        bootstrap,
        POINTER_TOPIC,
        stop="latest",
        isolation_level="read_committed",
        security=security,
        api_timeout=api_timeout,
    )
    async with reader:
        try:
            async with asyncio.timeout(api_timeout):
                return await _newest(reader)
        except TimeoutError:
            raise PointersUnreadable(
                f"the topic {POINTER_TOPIC} could not be read within {api_timeout:g} s; see that "
                "the leader of its partition is up"
            ) from None


async def _newest(reader: Reader) -> dict[str, Pointer]:
    found: dict[str, Pointer] = {}
    async for record in reader.records():
        topic = (record.key or b"").decode(errors="replace")
        if record.value is None:
            found.pop(topic, None)
            continue
        try:
            found[topic] = decode_pointer(topic, record.value)
        except BadPointer as error:
            logger.warning("%s offset %d is passed over: %s", POINTER_TOPIC, record.offset, error)
    return found


async def create_pointer_topic(admin: Admin) -> None:
    """Make the topic of pointers, unless it is there."""
    try:
        await admin.create_topic(POINTER_TOPIC, 1, configs={"cleanup.policy": "compact"})
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def pointer_of(topic: str, state: TableState, letters: TableState | None) -> Pointer:
    """To the snapshots that a table and its dead letters are at."""
    is_own = letters is not None and letters.topic_id == state.topic_id
    own = letters if is_own else None
    return Pointer(
        topic,
        state.topic_id,
        state.table,
        state.metadata_location,
        "iceberg",
        state.snapshot,
        dict(state.next),
        None if own is None else own.table,
        None if own is None else own.metadata_location,
    )


async def publish_current(
    bootstrap: str | Sequence[str],
    tables: TableFormat,
    settings: TopicSettings,
    *,
    security: Security = PLAINTEXT,
) -> None:
    """Point to a table as it is now, after somebody else than the worker has changed it."""
    state = await asyncio.to_thread(tables.load, settings.table)
    letters = await asyncio.to_thread(tables.load, dead_letter_table(settings.table))
    if state is None:
        return
    async with Producer(bootstrap, security=security, client_id="ottla-table") as producer:
        await publish(producer, pointer_of(settings.topic, state, letters))


async def withdraw(
    bootstrap: str | Sequence[str],
    topic: str,
    topic_id: str | None,
    *,
    security: Security = PLAINTEXT,
) -> None:
    """Remove the pointer of a topic, unless it names the table of this topic id.

    Before that table is renamed: no worker publishes a pointer while the old table is in its way.
    """
    old = (await read_pointers(bootstrap, security=security)).get(topic)
    if old is None or old.topic_id == topic_id:
        return
    async with Producer(bootstrap, security=security, client_id="ottla-table") as producer:
        await producer.send(POINTER_TOPIC, None, key=topic.encode())


async def publish(producer: Producer, pointer: Pointer) -> None:
    """Write a pointer, and wait until it is durable."""
    await producer.send(POINTER_TOPIC, encode_pointer(pointer), key=pointer.topic.encode())


def _text(found: dict[str, Any], name: str) -> str:
    value = found[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a text")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("an offset is a whole number")
    return value


def _whole_or_none(value: object) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError("snapshot_id is not a number")
    return value
