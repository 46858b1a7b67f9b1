"""Pass Spark's reports to the board. Handlers must be fast: events queue in the driver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla.spark.pipelines.progress import parse

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from ottla.spark.pipelines.board import Board


class BoardListener(StreamingQueryListener):
    """Reports batches; the runner reports states, because it starts and stops the queries."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        self._board.report(parse(json.loads(event.progress.json)))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        pass
