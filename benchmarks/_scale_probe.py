"""A small producer in a process of its own that knows how long its longest request took.

Whoever holds up the broker's event loop holds up this client too: its longest wait is what other
users notice.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Final, Self

from tests.support.raw_client import RawClient, batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event
    from types import TracebackType

TOPIC: Final = "probe"
PAUSE_SECONDS: Final = 0.005
START_SECONDS: Final = 30.0


class Probe:
    """Produces one record at a time from `__enter__` to `__exit__`."""

    def __init__(self, bootstrap: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._longest = context.Value("d", 0.0)
        self._ready, self._end = context.Event(), context.Event()
        self._process = context.Process(
            target=_produce, args=(bootstrap, self._longest, self._ready, self._end), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        assert self._ready.wait(START_SECONDS), "the probe did not start"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._process.join(START_SECONDS)
        self._process.kill()

    def longest(self) -> float:
        """The longest request since the last call, in seconds."""
        with self._longest.get_lock():
            found: float = self._longest.value
            self._longest.value = 0.0
        return found

    def wait_for(self, done: Callable[[], bool], *, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"not done after {seconds} s"
            time.sleep(1)


def _produce(bootstrap: str, longest: Synchronized[float], ready: Event, end: Event) -> None:
    with RawClient(bootstrap) as client:
        while not client.topic(TOPIC, create=True).partitions:
            time.sleep(PAUSE_SECONDS)
        while client.produce(TOPIC, batch(b"warm-up")).error_code:
            time.sleep(PAUSE_SECONDS)
        ready.set()
        records = batch(b"probe")
        while not end.is_set():
            began = time.perf_counter()
            assert client.produce(TOPIC, records).error_code == 0
            took = time.perf_counter() - began
            with longest.get_lock():
                longest.value = max(longest.value, took)
            time.sleep(PAUSE_SECONDS)
