"""The interface of metadata stores.

One node alone, several nodes on one machine and several machines differ only in the store behind
this protocol. Every call may block: on a disk, on another process's lock, on a network. So a store
lives in one thread of its own, is opened, used and closed there, and needs no locks;
`ottla.metadata.metadata.Metadata` is that thread and what the event loop uses instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.changes.apply import Change, Decision
    from ottla.metadata.image import MetadataImage


class MetadataStore(Protocol):
    def snapshot(self) -> MetadataImage:
        """The newest image this store has read; blocks never. Other nodes may be ahead."""
        ...

    def propose(self, *steps: Change | Decision, wait: float) -> MetadataImage:
        """Carry out the steps in order, all or none, durable on return; return the image after.

        The steps meet the newest image of all nodes, not just of this one. A change that does not
        fit raises its `ChangeRefused`; `snapshot` is then the image that refused it. A store that
        cannot begin within `wait` seconds raises `StoreBusy`, and nothing is changed.
        """
        ...

    def poll(self) -> MetadataImage:
        """Read what other nodes changed since; return the newest image."""
        ...

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        """A secret of the cluster that is in no image; the first to ask makes it, durably."""
        ...

    def close(self) -> None: ...
