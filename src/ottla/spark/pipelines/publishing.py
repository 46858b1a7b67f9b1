"""Tells the topic `ottla.pipelines` what a run does, once a second, from a thread of its own.

The pipeline waits for nothing here and fails of nothing here: the thread reads the board, and what
it cannot deliver it tells later, or not at all. It publishes only if the topic exists; while it
does not, it looks again every minute. It needs the rights Describe and Write on the topic.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

from ottla.client.errors import AuthorizationFailed, UnknownTopic
from ottla.client.producer.types import ProducerRecord
from ottla.clock import SYSTEM
from ottla.metadata.names import PIPELINES_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from ottla.client.security import Security
    from ottla.clock import Clock
    from ottla.spark.pipelines.announcing import Announcer, Due
    from ottla.spark.pipelines.board import Board

CLIENT: Final = "ottla-pipeline"
INTERVAL: Final = 1.0
"""Seconds: a flow is told at most once in this time, however many batches it has done."""
LOOK_MS: Final = 60_000
"""Milliseconds between looks for the topic."""
TIMEOUT: Final = 10.0
"""Seconds for which the thread waits for brokers."""
LAST: Final = 5.0
"""Seconds for which the end of a run waits until its last states are told."""
MEMORY: Final = 4 * 1024 * 1024
"""Bytes of records that wait in the producer."""

LOG = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where records go."""

    def send(self, due: Sequence[Due]) -> bool:
        """False if the topic is gone."""
        ...

    def close(self) -> None: ...


class TopicOutlet:
    """The topic, by connections of its own."""

    def __init__(self, bootstrap: str, security: Security) -> None:
        from ottla.sync import Admin, Producer

        self._open = ExitStack()
        self._admin = self._open.enter_context(
            Admin(bootstrap, client_id=CLIENT, api_timeout=TIMEOUT, security=security)
        )
        self._producer = self._open.enter_context(
            Producer(
                bootstrap,
                client_id=CLIENT,
                security=security,
                enable_idempotence=False,  # a record that comes twice says the same
                buffer_memory=MEMORY,
                delivery_timeout_ms=TIMEOUT * 1000,
                request_timeout_ms=TIMEOUT * 1000,
                max_block_ms=TIMEOUT * 1000,
            )
        )

    def exists(self) -> bool:
        """Whether the cluster has the topic. To look does not make one; to produce might."""
        try:
            self._admin.describe_topics([PIPELINES_TOPIC])
        except UnknownTopic:
            return False
        return True

    def send(self, due: Sequence[Due]) -> bool:
        if not self.exists():
            return False
        records = [ProducerRecord(one.value, key=one.key) for one in due]
        self._producer.send_many(PIPELINES_TOPIC, records)
        return True

    def close(self) -> None:
        self._open.close()


def find_outlet(bootstrap: str, security: Security) -> Outlet | None:
    """The topic, or None if the cluster has none."""
    found = TopicOutlet(bootstrap, security)
    try:
        if found.exists():
            return found
    except BaseException:
        found.close()
        raise
    found.close()
    return None


class Publisher:
    """A context manager: publishes until it is left, and then the last states."""

    def __init__(
        self,
        announcer: Announcer,
        board: Board,
        find: Callable[[], Outlet | None],
        clock: Clock = SYSTEM,
    ) -> None:
        self._announcer = announcer
        self._board = board
        self._find = find
        self._clock = clock
        self._outlet: Outlet | None = None
        self._look_at_ms = 0
        self._is_failing = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ottla-publisher", daemon=True)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(LAST)

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.attempt(ended=False)
        self.attempt(ended=True)
        self.close()

    def attempt(self, *, ended: bool = False) -> None:
        """One round; whatever it raises is told, and no affair of the pipeline."""
        try:
            self.round(ended=ended)
        except Exception as error:  # noqa: BLE001  # a fault of ours must not end the telling
            self._failed(error)
        else:
            self._is_failing = False

    def round(self, *, ended: bool = False) -> None:
        """Tell what is due; raises what the brokers answer."""
        now = self._clock.now()
        if self._outlet is None:
            if now.ms < self._look_at_ms:
                return
            self._look_at_ms = now.ms + LOOK_MS
            self._outlet = self._find()
        if self._outlet is None:
            return
        due = self._announcer.due(self._board.views(), now, ended=ended)
        if due and self._outlet.send(due):
            self._announcer.delivered(due, now)
        elif due:
            self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._outlet is not None:
            self._outlet.close()
            self._outlet = None

    def _failed(self, error: Exception) -> None:
        # Before the topic is found, nobody has asked for this: others tell that a broker is away.
        tell = LOG.debug if self._is_failing or self._outlet is None else LOG.warning
        self._is_failing = True
        why = str(error)
        if isinstance(error, AuthorizationFailed):
            why = f"not allowed: needs Describe and Write on topic {PIPELINES_TOPIC!r}"
        tell("cannot tell %s what the pipeline does, which goes on: %s", PIPELINES_TOPIC, why)
