"""A broker whose event loop is watched; when it stops it tells the longest turn of its loop.

    python -m benchmarks._scale_monitor REPORT DATA_DIR [key=value ...]

REPORT gets the seconds, and on further lines what the loop was doing. A turn counts as far as the
loop computed or waited for something, not where other threads or processes had the processors.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks._ottla import READY
from ottla.broker.running.run import run_broker
from ottla.metadata.config.broker import load_broker_config
from tests.support.loop_monitor import LoopMonitor, Stall

if TYPE_CHECKING:
    from ottla.broker.running.node import Node

NOTED_SECONDS: Final = 0.010  # shorter turns are not told apart
COLLECT_SECONDS: Final = 0.2


def main(report: str, data_dir: str, *sets: str) -> None:
    watched: list[LoopMonitor] = []
    longest = Stall(0.0)

    def collect() -> None:
        nonlocal longest
        longest = max(longest, *watched[0].taken(), longest, key=lambda stall: stall.seconds)

    def ready(node: Node) -> None:
        loop = asyncio.get_running_loop()
        watched.append(LoopMonitor(loop, NOTED_SECONDS))
        watched[0].start()

        def again() -> None:
            collect()
            loop.call_later(COLLECT_SECONDS, again)

        again()
        print(READY, *(f"{host}:{port}" for host, port in node.addresses.values()), flush=True)

    run_broker(load_broker_config(sets=sets), Path(data_dir), ready)
    watched[0].stop()
    collect()
    Path(report).write_text(f"{max(longest.seconds, NOTED_SECONDS)}\n{longest}")


if __name__ == "__main__":
    main(*sys.argv[1:])
