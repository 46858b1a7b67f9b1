"""Bytes per offset of each partition, if brokers report sizes.

Rules:

- The size of a log on its leader's disk is divided by its number of offsets there. So bytes are
  those of compressed batches, and include gaps and deleted records within a file.
- Brokers are asked at most every `metadataTtlMs`.
- A limit in bytes is soft, and no query fails because of it: if brokers do not report sizes, the
  last known sizes are used, with one warning.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.client.cluster.view import TopicPartition

LOG: Final = logging.getLogger("ottla.spark")


class RecordSizes:
    """The last known sizes."""

    def __init__(
        self, ask: Callable[[Iterable[TopicPartition]], dict[TopicPartition, float]], ttl: float
    ) -> None:
        self._ask = ask
        self._ttl = ttl
        self._asked_at = -float("inf")
        self._known: Mapping[TopicPartition, float] = {}
        self._has_warned = False

    def of(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, float]:
        """Bytes per offset; unknown partitions are left out."""
        if time.monotonic() - self._asked_at >= self._ttl:
            try:
                self._known = self._ask(places)
            except ClientError as error:
                if not self._has_warned:
                    LOG.warning("maxBytesPerTrigger uses older sizes: %s", error)
                self._has_warned = True
            self._asked_at = time.monotonic()
        return self._known
