"""The streams room against its peers: `python -m benchmarks.streams [--quick] [NAME ...]`.

| rows | peer, same run | at least |
|---|---|---|
| file | the SeaStreamer crate's file backend | 0.8x write, 0.8x read |
| kafka | a bare AIOConsumer poll loop of confluent-kafka | 2x |
| redis | a redis-py XREADGROUP loop with batch 100 | 1.5x |
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks._harness import ROUNDS, report

if TYPE_CHECKING:
    from benchmarks._harness import Row

SECTIONS = {
    "file": ("benchmarks._streams_file", 200_000, ["numba"]),
    "kafka": ("benchmarks._streams_kafka", 100_000, ["confluent-kafka"]),
    "redis": ("benchmarks._streams_redis", 20_000, ["redis"]),
}


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    for name in names or SECTIONS:
        module, messages, packages = SECTIONS[name]
        rows: list[Row] = import_module(module).rows(
            messages // 4 if quick else messages, 3 if quick else ROUNDS
        )
        if rows:
            report(f"streams: {name}", rows, packages)


if __name__ == "__main__":
    main()
