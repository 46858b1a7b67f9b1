"""The seam between the broker and whatever keeps the cluster's image.

One node alone, several nodes on one machine and several machines differ only in the store behind
this protocol. All calls are synchronous and quick: reading `image` costs nothing, `poll` costs
microseconds when nothing happened, `propose` costs one durable write (an fsync, milliseconds), so
a broker may call it inline when changes are rare and in a thread when they are not. Calls are
safe from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.changes.apply import Change
    from ottla.metadata.image import MetadataImage

    Watcher = Callable[[MetadataImage, MetadataImage], None]

# A node asks the store once per this many producers, and a crash wastes at most as many of 2^63.
PRODUCER_ID_BLOCK_SIZE: Final = 1000


class MetadataStore(Protocol):
    @property
    def image(self) -> MetadataImage:
        """The newest image this process knows. Another process may be ahead until `poll`."""
        ...

    def propose(self, *changes: Change, expected_version: int | None = None) -> MetadataImage:
        """Apply the changes in order, all or none, durable on return; return the image after them.

        The changes meet the newest image of all nodes, not just of this one. With
        `expected_version` they are made only if that image still has this version, else
        `VersionConflict`. A change that does not fit raises its `ChangeRefused`.
        """
        ...

    def poll(self) -> MetadataImage:
        """Take over what other nodes changed since; return the newest image."""
        ...

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher(before, after)` whenever `image` moves; return what ends the watch.

        Watchers run in the thread whose `propose` or `poll` moved the image, in order of version,
        and must not call the store; `ottla.metadata.delta` tells them what is different.
        """
        ...

    def allocate_producer_ids(self, node_id: int, count: int = PRODUCER_ID_BLOCK_SIZE) -> range:
        """A block of producer ids that no node had before."""
        ...

    def close(self) -> None: ...
