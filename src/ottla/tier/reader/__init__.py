"""Remote segments for engines: which bytes of which objects hold the records, and those records.

    storage = RemoteStorageManager(open_store(location), location.prefix, cluster_id="")
    reader = RemoteReader(storage, ListingSource(storage))
    plan = await reader.plan("orders", 0)
    async for rows in reader.read(plan):
        ...

No broker takes part. The catalogue is read from the metadata topic (`TopicSource`) or, when no
broker answers at all, made from a listing of the store (`ListingSource`). A plan's splits are plain
values that can be sent to other processes; `stream_split` needs nothing but the store.
"""

from ottla.tier.reader.planning import Plan, PlannedSegment, Split
from ottla.tier.reader.reading import (
    OffsetsExpired,
    RemoteReader,
    SegmentGone,
    read_split,
    stream_split,
)
from ottla.tier.reader.sources import (
    AmbiguousTopic,
    ListingSource,
    SegmentSource,
    TopicSource,
    rebuild_catalogue,
)

__all__ = [
    "AmbiguousTopic",
    "ListingSource",
    "OffsetsExpired",
    "Plan",
    "PlannedSegment",
    "RemoteReader",
    "SegmentGone",
    "SegmentSource",
    "Split",
    "TopicSource",
    "read_split",
    "rebuild_catalogue",
    "stream_split",
]
