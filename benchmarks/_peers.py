"""The brokers that benchmarks measure Ottla against, in the same run and on the same machine.

`apache_kafka` is None where there is no JVM; a benchmark then prints `why_no_jvm()` in place of the
figures it could not take. `RdkafkaMock` is always there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import Producer

from tests.support.jvm import (
    KAFKA_VERSION,
    ApacheKafka,
    kafka_classpath,
    run_tool,
    why_no_jvm,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

__all__ = [
    "KAFKA_VERSION",
    "PERF_TOOL_JVM",
    "ApacheKafka",
    "RdkafkaMock",
    "apache_kafka",
    "run_tool",
    "why_no_jvm",
]

# As Kafka's scripts run kafka-*-perf-test: for `run_tool(..., jvm_options=PERF_TOOL_JVM)`.
PERF_TOOL_JVM: Final = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

MOCK_TIMEOUT: Final = 10.0


def apache_kafka(
    *,
    heap: str = "1g",
    config: Mapping[str, str] | None = None,
    jvm_options: Sequence[str] = (),
) -> ApacheKafka | None:
    """Apache Kafka, to be entered with `with`; the defaults are those of Kafka's own scripts."""
    if kafka_classpath() is None:
        return None
    return ApacheKafka(heap=heap, config=config, jvm_options=jvm_options)


class RdkafkaMock:
    """The mock cluster inside librdkafka: in memory, in this process, in threads of its own."""

    bootstrap: str
    seconds_to_ready: float

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = brokers
        self._host: Producer | None = None

    def __enter__(self) -> Self:
        began = time.monotonic()
        # The cluster lives as long as the client that asked for it.
        self._host = Producer({"test.mock.num.brokers": self.brokers, "log_level": 0})
        found = self._host.list_topics(timeout=MOCK_TIMEOUT).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in found)
        self.seconds_to_ready = time.monotonic() - began
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._host = None
