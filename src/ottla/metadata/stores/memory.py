"""The metadata store of an ephemeral broker: the image alone, gone with the process.

It never blocks, so it needs no thread: `Metadata.open(..., blocks=False)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.metadata.changes.apply import carry_out
from ottla.metadata.changes.nodes import SetClusterId
from ottla.metadata.image import MetadataImage, random_topic_id, topic_id_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.metadata.changes.apply import Change, Decision


class MemoryMetadataStore:
    """A `MetadataStore`."""

    def __init__(self) -> None:
        self._secrets: dict[str, bytes] = {}
        self._image = MetadataImage()
        self.propose(SetClusterId(topic_id_text(random_topic_id())))

    def snapshot(self) -> MetadataImage:
        return self._image

    def propose(self, *steps: Change | Decision, wait: float = 0.0) -> MetadataImage:
        self._image = carry_out(self._image, steps)[1]
        return self._image

    def poll(self) -> MetadataImage:
        return self._image

    def secret(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._secrets:
            self._secrets[name] = make()
        return self._secrets[name]

    def close(self) -> None:
        """Nothing is open."""
