"""Progress of a query for others to see: offsets committed to a consumer group.

Spark's checkpoint stays the truth. Saving happens in the background, the newest offsets in place of
those that still wait; what cannot be saved is a warning, and the next save covers it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla.spark.options import LOG

if TYPE_CHECKING:
    from ottla.spark.cluster import Cluster
    from ottla.spark.offsets import Offsets

CLOSE_SECONDS: Final = 2.0


class GroupMirror:
    """Commits to one group, never twice the same."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._saved: Offsets = {}
        self._waiting: Offsets | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ottla-offsets", daemon=True)
        self._thread.start()

    def save(self, offsets: Offsets) -> None:
        """Have these committed soon."""
        with self._changed:
            if offsets != self._saved:
                self._saved = self._waiting = offsets
                self._changed.notify()

    def close(self) -> None:
        """Commit what waits, unless that takes too long."""
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
                self._cluster.commit(self._group, offsets)
            except ClientError as error:
                LOG.warning("offsets are not committed to group %s: %s", self._group, error)
