"""A broker that kills itself when a transaction has been decided and its markers are half written.

How many times it writes all of them before is in the environment, as MARKERS_BEFORE_KILL; without
it the broker lives on.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from typing import TYPE_CHECKING

from ottla.broker.coordinators.markers import MarkerWriter
from tests.support import faults_broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.coordination.machine import Marker
    from ottla.coordination.transactions.messages import Partition
    from ottla.wire.error_codes import ErrorCode

MARKERS_BEFORE_KILL = "MARKERS_BEFORE_KILL"


def main(data_dir: str, *sets: str) -> None:
    write = MarkerWriter.write
    calls = count()

    async def write_or_die(
        writer: MarkerWriter, marker: Marker, partitions: Iterable[Partition]
    ) -> dict[Partition, ErrorCode]:
        found = sorted(partitions)
        call = next(calls)
        if call >= int(os.environ[MARKERS_BEFORE_KILL]):
            await write(writer, marker, found[: call % (len(found) + 1)])
            os.kill(os.getpid(), signal.SIGKILL)
        return await write(writer, marker, found)

    if MARKERS_BEFORE_KILL in os.environ:
        setattr(MarkerWriter, "write", write_or_die)  # noqa: B010  # a type checker sees no method
    faults_broker.main(data_dir, *sets)


if __name__ == "__main__":
    main(*sys.argv[1:])
