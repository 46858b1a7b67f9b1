"""The metrics of the console's `/metrics`: names, labels and what they say. A table, no code."""

from __future__ import annotations

from typing import Final, NamedTuple


class Family(NamedTuple):
    """`other` is its name in the scheme of kafka_exporter, where it has one."""

    name: str
    help: str
    labels: tuple[str, ...] = ("cluster",)
    kind: str = "gauge"
    other: str = ""


PARTITION: Final = ("cluster", "topic", "partition")
GROUP_PARTITION: Final = ("cluster", "group", "topic", "partition")
GROUP_TOPIC: Final = ("cluster", "group", "topic")

UP: Final = Family("ottla_console_cluster_up", "1 if a broker of the cluster answers.")
AGE: Final = Family("ottla_console_data_age_seconds", "Age of what is known about the cluster.")
SPENT: Final = Family("ottla_console_sample_seconds", "Time that the last sample's requests took.")
SERIES: Final = Family("ottla_console_history_series", "Series whose history is kept.")
CUT: Final = Family(
    "ottla_console_metrics_cut",
    "1 if there are so many partitions that their metrics are sums by topic.",
)
ATTENTION: Final = Family(
    "ottla_console_attention",
    "What needs attention, by the word of its rule; rules that cannot be checked are left out.",
    ("cluster", "word"),
)
REQUESTS: Final = Family("ottla_console_requests_total", "Requests served.", (), "counter")
LOGINS: Final = Family("ottla_console_logins", "People who are logged in.", ())
STREAMS: Final = Family("ottla_console_streams", "Live tails and searches that run.", ())

GROUP_STATE: Final = Family(
    "ottla_group_state",
    "1; the state of a group is a label.",
    ("cluster", "group", "type", "state"),
)
GROUP_LAG: Final = Family(
    "ottla_group_lag_records",
    "Records that the group has not taken yet.",
    GROUP_PARTITION,
    other="kafka_consumergroup_lag",
)
GROUP_SECONDS: Final = Family(
    "ottla_group_lag_seconds",
    "Age of the first record that the group has not taken, the largest of a topic.",
    GROUP_TOPIC,
)
COMMITTED: Final = Family(
    "ottla_group_committed_offset",
    "Committed offset.",
    GROUP_PARTITION,
    other="kafka_consumergroup_current_offset",
)
SHARE_LAG: Final = Family(
    "ottla_share_group_lag_records", "Records that the queue has still to settle.", GROUP_PARTITION
)
SHARE_SECONDS: Final = Family(
    "ottla_share_group_lag_seconds",
    "Age of the first record that the queue has not settled, the largest of a topic.",
    GROUP_TOPIC,
)
TOPIC_RECORDS: Final = Family(
    "ottla_topic_records", "End minus start of all partitions.", ("cluster", "topic")
)
END: Final = Family(
    "ottla_partition_end_offset",
    "Next offset to be written.",
    PARTITION,
    other="kafka_topic_partition_current_offset",
)
START: Final = Family(
    "ottla_partition_start_offset",
    "First offset of the log.",
    PARTITION,
    other="kafka_topic_partition_oldest_offset",
)

FAMILIES: Final = (
    UP,
    AGE,
    SPENT,
    SERIES,
    CUT,
    ATTENTION,
    REQUESTS,
    LOGINS,
    STREAMS,
    GROUP_STATE,
    GROUP_LAG,
    GROUP_SECONDS,
    COMMITTED,
    SHARE_LAG,
    SHARE_SECONDS,
    TOPIC_RECORDS,
    END,
    START,
)
OTHER_LABELS: Final = {"group": "consumergroup"}
"""Labels of kafka_exporter that have other names than ours."""
