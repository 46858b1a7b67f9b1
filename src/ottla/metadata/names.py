"""Valid topic names, and the names of internal topics.

A topic's name becomes a directory's name, so it is checked before any path is made from it: 1 to
249 characters of ``[A-Za-z0-9._-]``, not ``.`` or ``..``. Names that differ only in ``.`` and
``_`` collide, because metrics replace one by the other.
"""

from __future__ import annotations

import re
from typing import Final

from ottla.metadata.errors import InvalidTopicName

# "-" and a partition number of up to five digits still fit a 255-byte file name.
MAX_TOPIC_NAME_LENGTH: Final = 249

_LEGAL = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_TOPIC_NAME_LENGTH}}}")

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
POINTER_TOPIC: Final = "ottla.tables"
"""The compacted topic of tables' pointers: one partition, written by the table worker."""
PIPELINES_TOPIC: Final = "ottla.pipelines"
"""Where `ottla run` tells what its pipelines do, if the topic exists; nobody makes it unasked."""
TABLE_GROUP_PREFIX: Final = "ottla.table."
"""Of the groups that show the positions of tables."""

# Flagged internal in Metadata answers. The remote log's topic is not, as in Kafka: it is guarded
# by who may write to it, not by the flag.
INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC}
)
OWN_TOPICS: Final = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC}
"""Those that the broker alone writes, whatever ACLs say."""


def check_topic_name(name: str) -> str:
    """Return the name, or raise `InvalidTopicName`."""
    if not is_legal(name):
        raise InvalidTopicName(
            f"1 to {MAX_TOPIC_NAME_LENGTH} characters of [A-Za-z0-9._-], not '.' or '..'",
            _shown(name),
            "topic name",
        )
    return name


def is_legal(name: str) -> bool:
    return name not in {".", ".."} and _LEGAL.fullmatch(name) is not None


def collision_key(name: str) -> str:
    """Two names collide when their keys are equal."""
    return name.replace(".", "_")


def table_name(topic: str) -> str:
    """The Iceberg table of a topic that is given no other name."""
    return topic.replace(".", "_").replace("-", "_")


def is_internal(name: str) -> bool:
    """Whether the topic belongs to the broker: clients may read it, not write or delete it."""
    return name in INTERNAL_TOPICS


def _shown(name: str) -> str:
    """The name as an error may print it: a hostile name must not fill the log."""
    if len(name) <= MAX_TOPIC_NAME_LENGTH:
        return repr(name)
    return f"{name[:32]!r}... ({len(name)} characters)"
