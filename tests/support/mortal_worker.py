"""A table worker in a process of its own that kills itself at a named step of a round."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

from ottla.tables import iceberg, rounds
from ottla.tables.settings import worker_settings
from ottla.tables.table_task import TableTask
from ottla.tables.warehouse import Warehouse
from ottla.tables.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EFFECTS: dict[str, type[rounds.Effect]] = {
    "load": rounds.Load,
    "create": rounds.Create,
    "take": rounds.Take,
    "upload": rounds.Upload,
    "letters": rounds.CommitLetters,
    "commit": rounds.CommitRows,
    "publish": rounds.Publish,
    "mirror": rounds.Mirror,
}
STEPS = (
    *(f"{when} {name}" for name in EFFECTS for when in ("before", "after")),
    "one file uploaded",
    "manifests of letters written",
    "manifests of rows written",
)


def run(bootstrap: str, warehouse: str, catalog: str, topic: str, step: str) -> None:
    """Take what is there, and die at the step. Ends as it should if the step does not come."""
    _arm(step)

    async def work() -> None:
        settings = worker_settings(warehouse, catalog, "ottla", {})
        async with Worker(bootstrap, settings, topics=[topic]) as worker:
            await worker.run_once()

    asyncio.run(work())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(step: str) -> None:
    when, _, name = step.partition(" ")
    if name in EFFECTS:
        _around(TableTask, "do", lambda effect: isinstance(effect, EFFECTS[name]), when)
    elif step == "one file uploaded":
        _around(Warehouse, "upload", lambda *_: True, "after")
    else:
        table = "__dlq" if "letters" in step else ""
        _before_commit(table)


def _around(owner: type, name: str, is_meant: Callable[..., bool], when: str) -> None:
    whole: Callable[..., Any] = getattr(owner, name)

    async def armed(self: Any, *args: Any) -> Any:
        if is_meant(*args) and when == "before":
            _die()
        found = await whole(self, *args)
        if is_meant(*args):
            _die()
        return found

    setattr(owner, name, armed)


def _before_commit(table: str) -> None:
    whole = iceberg.IcebergTables._hand_over

    def armed(self: Any, state: Any, *args: Any) -> Any:
        if state.table.endswith("__dlq") == bool(table):
            _die()
        return whole(self, state, *args)

    iceberg.IcebergTables._hand_over = armed  # type: ignore[method-assign,assignment]


def places(directory: Path) -> tuple[str, str]:
    """Warehouse and catalogue below a directory."""
    return f"file://{directory}/w", f"sqlite:///{directory}/catalog.db"
