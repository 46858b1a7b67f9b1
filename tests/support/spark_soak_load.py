"""One producer at a steady rate: numbers in order, in chunks of columns, partition by partition."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

import numpy as np
import pyarrow as pa

from ottla.client.producer.producer import Producer
from tests.support.spark_soak import DIGITS, NUMBERS

PARTITIONS: Final = 4
CHUNK: Final = 5_000
PADDING: Final = b"." * 30  # to a value of 40 bytes, about 48 in the log
POWERS: Final = 10 ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64)
# Longer than any broker is down here: what is sent has to arrive.
DELIVERY_TIMEOUT_MS: Final = 600_000


def encoded(first: int, count: int) -> pa.Table:
    """The values of so many numbers."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    values = np.empty((count, DIGITS + len(PADDING)), np.uint8)
    values[:, :DIGITS] = (numbers[:, None] // POWERS) % 10 + ord("0")
    values[:, DIGITS:] = np.frombuffer(PADDING, np.uint8)
    ends = np.arange(count + 1, dtype=np.int32) * values.shape[1]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(values)]
    return pa.table({"value": pa.Array.from_buffers(pa.binary(), count, buffers)})


def decoded(values: pa.Array) -> np.ndarray:
    """The numbers that values begin with; all values are of one size."""
    if not len(values):
        return np.empty(0, np.int64)
    _, ends, data = values.buffers()
    edges = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, np.uint8)[edges[0] : edges[-1]].reshape(len(values), -1)
    return (text[:, :DIGITS] - np.uint8(ord("0"))).astype(np.int64) @ POWERS


class Load:
    """A thread that sends until it is told to stop; `sent` is what is acknowledged."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self._bootstrap = bootstrap
        self._rate = rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send()), daemon=True)
        self.sent = 0
        self.seconds = 0.0
        self.longest = 0.0
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After the chunk that is on its way."""
        self._stopped.set()
        self._thread.join()
        assert self.error is None, self.error

    async def _send(self) -> None:
        began = time.monotonic()
        try:
            async with Producer(
                self._bootstrap, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
            ) as producer:
                while not self._stopped.is_set():
                    # Behind its time it does not pause: the rate is one of the whole run.
                    due = began + self.sent / self._rate
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    asked = time.monotonic()
                    await producer.send_arrow(
                        NUMBERS,
                        encoded(self.sent, CHUNK),
                        partition=self.sent // CHUNK % PARTITIONS,
                    )
                    self.longest = max(self.longest, time.monotonic() - asked)
                    self.sent += CHUNK
        except BaseException as error:  # noqa: BLE001  # raised by `stop`
            self.error = error
        self.seconds = time.monotonic() - began
