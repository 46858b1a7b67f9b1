"""The state of each flow of a running pipeline, for display, JSON and metrics.

Events come from Spark's listener thread and from the runner; readers get copies.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.spark.pipelines.model import Hook
    from ottla.spark.pipelines.progress import Progress

LOG = logging.getLogger(__name__)

State: TypeAlias = Literal["waiting", "starting", "running", "pausing", "done", "stopped", "failed"]


@dataclass(frozen=True, slots=True)
class FlowView:
    """The current state of one flow; `error` is its last error."""

    name: str
    state: State = "waiting"
    progress: Progress | None = None
    batches: int = 0
    rows: int = 0
    restarts: int = 0
    locks_lost: int = 0
    error: str | None = None


class Board:
    """All flows of a run, by name."""

    def __init__(
        self,
        flows: Iterable[str],
        hooks: Sequence[Hook] = (),
        tell: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self._flows = {name: FlowView(name) for name in flows}
        self._hooks = hooks
        self._tell = tell
        self._done: dict[str, int] = {}  # last batch of each run of a query
        self._lock = threading.Lock()

    def views(self) -> list[FlowView]:
        """All flows, in order."""
        with self._lock:
            return list(self._flows.values())

    def view(self, name: str) -> FlowView:
        """One flow."""
        with self._lock:
            return self._flows[name]

    def enter(self, name: str, state: State, error: str | None = None, restarts: int = 0) -> None:
        """Set the state of a flow."""
        with self._lock:
            before = self._flows[name]
            self._flows[name] = replace(
                before, state=state, error=error or before.error, restarts=restarts
            )
        event: dict[str, Any] = {"event": "state", "flow": name, "state": state}
        self._say({**event, "restarts": restarts, "error": error})

    def report(self, progress: Progress) -> None:
        """Handle Spark's report of a batch; repeated reports are ignored."""
        with self._lock:
            view = self._flows.get(progress.flow)
            if view is None:  # another query of the session
                return
            done = progress.is_batch
            if done and self._done.get(progress.run_id, -1) >= progress.batch:
                return
            if done:
                self._done[progress.run_id] = progress.batch
            self._flows[progress.flow] = replace(
                view,
                progress=progress if done or view.progress is None else view.progress,
                batches=view.batches + done,
                rows=view.rows + progress.rows,
                locks_lost=view.locks_lost + _newly_lost(view.progress, progress),
            )
        if done:
            self._say(progress.as_json())
            self._call_hooks(progress)

    def _say(self, event: dict[str, Any]) -> None:
        if self._tell is not None:
            self._tell(event)

    def _call_hooks(self, progress: Progress) -> None:
        for hook in self._hooks:
            if hook.flow in (None, progress.flow):
                try:
                    hook.function(progress)
                except Exception:  # a failing hook does not undo the batch
                    LOG.warning("@on_batch %s failed", hook.function.__name__, exc_info=True)


def _newly_lost(before: Progress | None, now: Progress) -> int:
    """New losses: a batch reports all open losses, not only its own."""
    known = 0 if before is None else before.locks_lost or 0
    return max(0, (now.locks_lost or 0) - known)
