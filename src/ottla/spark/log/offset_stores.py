"""A query's offsets in an offset store: one key per partition, under the name of the query.

The store follows Spark's checkpoint: if a query is set back, so are its stored offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.cluster.view import TopicPartition
from ottla.offsets.types import OffsetKey
from ottla.offsets.urls import store_from_url
from ottla.spark.errors import BadOption

if TYPE_CHECKING:
    from ottla.offsets.protocol import SyncOffsetStore
    from ottla.spark.offsets import Offsets


def open_store(url: str) -> SyncOffsetStore:
    """The store that an option names."""
    try:
        return store_from_url(url).sync
    except ValueError as error:
        raise BadOption(f"offsetStore: {error}") from None


def store_offsets(store: SyncOffsetStore, name: str, offsets: Offsets) -> None:
    """Save where a query is."""
    keys = {OffsetKey(name, place.topic, place.partition): at for place, at in offsets.items()}
    store.save_many(keys, rewind=True)


def stored(store: SyncOffsetStore, name: str) -> Offsets:
    """Where a query, or any other consumer of the name, was."""
    return {
        TopicPartition(key.stream, key.shard): position
        for key, position in store.list_all(name).items()
    }
