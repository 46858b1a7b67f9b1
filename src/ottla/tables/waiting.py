"""Why a table waits: told by its worker, read by `ottla table status`.

It is the note of the mirrored position in the group `ottla.table.<table>`, where every client can
read it while catalogue, store or registry are away. A round that ends well removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.tables.names import group_of

if TYPE_CHECKING:
    from ottla.client.admin.admin import Admin
    from ottla.tables.settings import TopicSettings

MAX_CHARACTERS: Final = 500
"""Of a note; brokers take 4,096 bytes, and one sentence is enough."""


async def note_wait(admin: Admin, settings: TopicSettings, why: str) -> None:
    """Leave a note; the position stays what it is."""
    group = group_of(settings.table)
    known = [one for one in await admin.list_group_offsets(group) if one.topic == settings.topic]
    places = {(one.topic, one.partition): one.offset for one in known}
    if not places:
        found = await admin.list_offsets([settings.topic], "earliest")
        places = {(one.topic, one.partition): listed.offset for one, listed in found.items()}
    if places:
        first = min(places)
        await admin.alter_group_offsets(
            group, {first: places[first]}, metadata=why[:MAX_CHARACTERS] or None
        )


async def noted_wait(admin: Admin, settings: TopicSettings) -> str | None:
    """What the worker noted last; None if it does not wait."""
    found = await admin.list_group_offsets(group_of(settings.table))
    notes = [one.metadata for one in found if one.topic == settings.topic and one.metadata]
    return notes[0] if notes else None
