"""Names that belong to a topic's table."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from ottla.metadata.names import TABLE_GROUP_PREFIX


def dead_letter_table(table: str) -> str:
    """The table of records that could not be converted."""
    return f"{table}__dlq"


def group_of(table: str) -> str:
    """The consumer group that mirrors the position, for tools that show lag."""
    return TABLE_GROUP_PREFIX + table


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka prints it."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def topic_id_bytes(text: str) -> bytes:
    """The id that Kafka prints so."""
    return urlsafe_b64decode(text + "==")
