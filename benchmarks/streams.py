"""The streams room against its peers: `python -m benchmarks.streams [file|kafka|redis ...]`.

| rows | peer, same run | at least |
|---|---|---|
| file | the SeaStreamer crate's file backend | 0.3x write, 0.3x read |
| kafka | a bare AIOConsumer poll loop of confluent-kafka | 2x |
| redis | a redis-py XREADGROUP loop with batch 100 | 0.8x |
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks._harness import report

if TYPE_CHECKING:
    from benchmarks._harness import Row

SECTIONS = {
    "file": ("benchmarks._streams_file", 200_000, ["numba"]),
    "kafka": ("benchmarks._streams_kafka", 100_000, ["confluent-kafka"]),
    "redis": ("benchmarks._streams_redis", 20_000, ["redis"]),
}


def main(names: list[str]) -> int:
    rounds = int(os.environ.get("BENCH_ROUNDS", "7"))
    missed = 0
    for name in names or SECTIONS:
        module, messages, packages = SECTIONS[name]
        rows: list[Row] = import_module(module).rows(messages, rounds)
        if rows:
            report(f"streams: {name}, {messages} messages a round", rows, packages)
        missed += sum(not row.reached for row in rows)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
