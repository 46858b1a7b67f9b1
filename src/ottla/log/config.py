"""The settings of one topic's logs, under Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DAY_MS: Final = 86_400_000
LONG_MAX: Final = (1 << 63) - 1  # Kafka's value for "never"
LIKE_RETENTION: Final = -2  # local.retention.*: the same as retention.*


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Field names are Kafka's topic settings with dots written as underscores."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    local_retention_ms: int = LIKE_RETENTION
    local_retention_bytes: int = LIKE_RETENTION
    ottla_validate_records: str = "sampled"
    ottla_table_enable: bool = False
    ottla_table_start: str = "earliest"
    ottla_table_hold_bytes: int = 10 << 30
    # What produce asks of every batch, worked out once.
    compacts: bool = field(init=False, repr=False, compare=False)
    log_append_time: bool = field(init=False, repr=False, compare=False)
    # Whether batches of any codec may be stored without a check of their records.
    leaves_records: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compacts", "compact" in self.cleanup_policy)
        append_time = self.message_timestamp_type == "LogAppendTime"
        object.__setattr__(self, "log_append_time", append_time)
        leaves_records = (
            not self.compacts
            and self.compression_type == "producer"
            and self.ottla_validate_records != "all"
        )
        object.__setattr__(self, "leaves_records", leaves_records)

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def local_retention(self) -> tuple[int, int]:
        """(milliseconds, bytes) that a tiered log keeps on local disk; -1 is no limit."""
        ms, size = self.local_retention_ms, self.local_retention_bytes
        return (
            self.retention_ms if ms == LIKE_RETENTION else ms,
            self.retention_bytes if size == LIKE_RETENTION else size,
        )

    @classmethod
    def from_topic_configs(cls, configs: Mapping[str, str]) -> LogConfig:
        """From settings that were validated before; those that are not the log's are ignored."""
        given = {
            one.name: _PARSERS[str(one.type)](configs[kafka_name])
            for one in fields(cls)
            if one.init and (kafka_name := one.name.replace("_", ".")) in configs
        }
        return cls(**given)  # type: ignore[arg-type]  # each value was parsed by its field's type


def _policy(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "int": int,
    "bool": "true".__eq__,
    "float": float,
    "str": str,
    "frozenset[str]": _policy,
}
