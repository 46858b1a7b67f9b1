"""Show a running pipeline: a live table on a terminal, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.common import complain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from rich.console import Console
    from rich.table import Table

    from ottla.spark.pipelines.board import Board, FlowView

REFRESHES_PER_SECOND: Final = 4
COLUMNS: Final = (
    *("flow", "state", "batch", "rows", "in/s", "done/s", "lag", "batch ms", "plan/run/log"),
    *("locks", "lost", "last error"),
)


class Display:
    """Writes rows and events to stdout, and messages about the run to stderr."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json or not sys.stdout.isatty()
        self._quiet = as_json
        self._console: Console | None = None

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        sys.stdout.flush()

    def say(self, sentence: str) -> None:
        """A line for people."""
        if not self._quiet:
            complain(sentence)

    def event(self, event: dict[str, Any]) -> None:
        """Print an event as one line of JSON."""
        if self._as_json:
            sys.stdout.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
            sys.stdout.flush()

    def rows(
        self,
        flow: str,
        batch: int,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        more: bool,
    ) -> None:
        """The rows of a flow that writes to the console."""
        if self._quiet:
            named = [dict(zip(columns, row, strict=True)) for row in rows]
            self.event({"event": "rows", "flow": flow, "batch": batch, "rows": named})
            return
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, title=f"{flow}, batch {batch}", title_justify="left")
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(Text("-" if value is None else str(value)) for value in row))
        console = self._console or Console(stderr=not sys.stdout.isatty())
        console.print(table)
        if more:
            console.print(f"only the first {len(rows)} rows of the batch are shown")

    @contextmanager
    def live(self, board: Board) -> Iterator[None]:
        """The table while the block runs, and once more when it ends."""
        if self._as_json:
            yield
            return
        from rich.console import Console
        from rich.live import Live

        self._console = Console()
        with Live(
            console=self._console,
            get_renderable=lambda: status_table(board.views()),
            refresh_per_second=REFRESHES_PER_SECOND,
        ):
            yield
        self._console = None


def status_table(views: Sequence[FlowView]) -> Table:
    """One line per flow."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    cells = [flow_cells(view) for view in views]
    has_locks = any(view.progress and view.progress.locks_held is not None for view in views)
    has_errors = any(view.error for view in views)
    shown = [
        number
        for number, column in enumerate(COLUMNS)
        if (has_locks or column not in ("locks", "lost")) and (has_errors or column != "last error")
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number in shown:
        is_text = number in (0, 1, len(COLUMNS) - 1)
        table.add_column(COLUMNS[number], justify="left" if is_text else "right", overflow="fold")
    for row in cells:
        table.add_row(*(Text(row[number]) for number in shown))
    return table


def flow_cells(view: FlowView) -> list[str]:
    """The cells of a flow, by `COLUMNS`."""
    state = f"{view.state} ({view.restarts} restarts)" if view.restarts else view.state
    progress = view.progress
    if progress is None:
        return [view.name, state, *["-"] * (len(COLUMNS) - 3), view.error or ""]
    return [
        view.name,
        state,
        str(progress.batch),
        f"{view.rows:,}",
        f"{progress.rows_per_second:,.0f}",
        f"{progress.processed_per_second:,.0f}",
        "-" if progress.lag is None else f"{progress.lag:,}",
        str(progress.total_ms),
        f"{progress.plan_ms}/{progress.run_ms}/{progress.log_ms}",
        "-" if progress.locks_held is None else f"{progress.locks_held:,}",
        "-" if progress.locks_held is None else f"{view.locks_lost:,}",
        view.error or "",
    ]
