"""Progress of a query for others to see: offsets saved elsewhere, such as in a consumer group.

Spark's checkpoint stays the truth. Saving happens in the background, the newest offsets in place of
those that still wait; what cannot be saved is a warning, and the next save covers it. Where saving
is required, a failure is raised by the next save instead.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla.offsets.errors import OffsetError
from ottla.spark.errors import NotSaved
from ottla.spark.log.hooks import HookFailed
from ottla.spark.options import LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.spark.offsets import Offsets

CLOSE_SECONDS: Final = 2.0


class Mirror:
    """Saves to one place, never twice the same; `name` is the place's in warnings."""

    def __init__(
        self, save: Callable[[Offsets], None], name: str, *, required: bool = False
    ) -> None:
        self._save = save
        self._name = name
        self._required = required
        self._failure: str | None = None
        self._saved: Offsets = {}
        self._waiting: Offsets | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ottla-offsets", daemon=True)
        self._thread.start()

    def save(self, offsets: Offsets) -> None:
        """Have these saved soon."""
        with self._changed:
            if self._failure is not None:
                raise NotSaved(f"{self._failure}; mend it, or leave out offsetStore.required")
            if offsets != self._saved:
                self._saved = self._waiting = offsets
                self._changed.notify()

    def close(self) -> None:
        """Save what waits, unless that takes too long."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._is_closed)
                offsets, self._waiting = self._waiting, None
            if offsets is None:
                return
            try:
                self._save(offsets)
            except (ClientError, OffsetError, OSError, HookFailed) as error:
                said = f"offsets are not saved in {self._name}: {error}"
                LOG.warning("%s", said)
                if self._required:
                    self._failure = said
