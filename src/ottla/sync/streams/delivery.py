"""Delivery without async. Made by scripts/generate_sync.py; do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.delivery import Delivery as AsyncDelivery
from ottla.sync.twin import Held, awaited

if TYPE_CHECKING:
    from ottla.streams.delivery import Batch
    from ottla.streams.types import Receipt


class Delivery(Held[AsyncDelivery]):
    """A sent message: its receipt, or the error, when the store has answered."""

    def __init__(self, batch: Batch, number: int) -> None:
        super().__init__(lambda: AsyncDelivery(batch, number))

    @property
    def done(self) -> bool:
        """Whether the store has answered."""
        return self._call(lambda: self._async.done)

    def result(self) -> Receipt:
        """The receipt, or raises the error; only when `done`."""
        return self._call(self._async.result)

    def wait(self) -> Receipt:
        """Wait for the receipt; raises the error."""
        return self._run(awaited(self._async))
