"""Producer ids, from blocks that this node takes from the cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.metadata.changes.nodes import AllocateProducerIds

if TYPE_CHECKING:
    from ottla.metadata.metadata import Metadata

# A node asks the store once per this many producers, and a crash wastes at most as many of 2^63.
PRODUCER_ID_BLOCK_SIZE: Final = 1000


class ProducerIds:
    def __init__(
        self, metadata: Metadata, node_id: int, block_size: int = PRODUCER_ID_BLOCK_SIZE
    ) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._block_size = block_size
        self._block = iter(range(0))
        self._taking: asyncio.Future[None] | None = None

    async def next(self) -> int:
        """An id that no producer of the cluster had before; raises what `Metadata.change` does."""
        while (found := next(self._block, None)) is None:
            # One proposal serves all waiting callers; they share its result or failure.
            if self._taking is None:
                self._taking = asyncio.ensure_future(self._take())
            await asyncio.shield(self._taking)
        return found

    async def _take(self) -> None:
        try:
            allocate = AllocateProducerIds(self._node_id, self._block_size)
            end = (await self._metadata.change(allocate)).next_producer_id
            self._block = iter(range(end - self._block_size, end))
        finally:
            self._taking = None
