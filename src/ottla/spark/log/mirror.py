"""Copies of a query's offsets in other places, such as a consumer group, to monitor its progress.

Spark's checkpoint decides where a query continues. A thread saves in the background, and newer
offsets replace waiting ones. An exception of a save is a warning, and the next call saves the same
offsets again; the thread never ends by an error. If saving is required, the next `save` or `flush`
raises the failure instead, which ends the query.

PySpark kills the process of the source when a query ends, without calling `stop`. So `flush`, which
the source calls when there is nothing left to read, waits until the last offsets are saved.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ottla.redaction import redact
from ottla.spark.errors import NotSaved
from ottla.spark.options import LOG

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.spark.offsets import Offsets

CLOSE_SECONDS: Final = 2.0
FLUSH_SECONDS: Final = 10.0
"""How long the end of a query waits for its last save: as long as SQLite waits for a lock."""


class Mirror:
    """Saves to one place, the same offsets only once; warnings call the place `name`."""

    def __init__(
        self, save: Callable[[Offsets], None], name: str, *, required: bool = False
    ) -> None:
        self._save = save
        self._name = redact(name)
        self._required = required
        self._failure: str | None = None
        self._asked: Offsets = {}
        self._waiting: Offsets | None = None
        self._is_saving = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ottla-offsets", daemon=True)
        self._thread.start()

    def save(self, offsets: Offsets) -> None:
        """Save these soon, in the background."""
        with self._changed:
            self._raise_failure()
            if offsets != self._asked:
                self._asked = self._waiting = offsets
                self._changed.notify_all()

    def flush(self, within: float = FLUSH_SECONDS) -> None:
        """Wait until all saves have finished or failed, at most `within` seconds."""
        with self._changed:
            if not self._changed.wait_for(self._is_idle, within):
                self._failed(f"offsets are not saved in {self._name} yet after {within:g} s")
            self._raise_failure()

    def close(self) -> None:
        """Save waiting offsets, unless that takes too long."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)

    def _is_idle(self) -> bool:
        return self._waiting is None and not self._is_saving

    def _raise_failure(self) -> None:
        if self._required and self._failure is not None:
            raise NotSaved(f"{self._failure}; repair the store, or remove offsetStore.required")

    def _failed(self, said: str) -> None:
        # Log an outage once, not for every failed save.
        if said != self._failure:
            LOG.warning("%s", said)
        self._failure = said

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._is_closed)
                offsets, self._waiting = self._waiting, None
                if offsets is None:
                    return
                self._is_saving = True
            failure = None
            try:
                self._save(offsets)
            except BaseException as error:  # noqa: BLE001  # also a hook's sys.exit
                failure = f"offsets are not saved in {self._name}: {redact(_told(error))}"
            with self._changed:
                self._is_saving = False
                if failure is not None:
                    self._failed(failure)
                    if self._asked is offsets:
                        self._asked = {}  # so that the next save tries again
                else:
                    self._failure = None
                self._changed.notify_all()


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
