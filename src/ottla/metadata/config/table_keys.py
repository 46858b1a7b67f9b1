"""Topic keys of tables: what the table worker does with a topic; and broker keys of the worker.

The broker stores, checks and shows the former; the worker reads them with DescribeConfigs. The
latter are for a worker that the broker runs itself.
"""

from __future__ import annotations

from typing import Final

from ottla.metadata.config.types import (
    LONG_MAX,
    Between,
    ConfigDef,
    ConfigType,
    Matching,
    OneOf,
    Rule,
)

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
HOUR_MS: Final = 3_600_000
PREFIX: Final = "ottla.table."
VALUE_FORMATS: Final = ("raw", "json", "avro", "protobuf", "registry", "registry-latest")
KEY_FORMATS: Final = ("binary", "utf8", "registry")
CONFLICTS: Final = ("dlq", "new-column", "pause")
INVALID: Final = ("dlq", "pause", "drop")
PARTITIONS: Final = ("day(_timestamp)", "hour(_timestamp)", "month(_timestamp)", "none")
SHORTEST_INTERVAL_MS: Final = 1000
"""A commit takes about a tenth of a second and makes files: more of them help nobody."""


def _table(name: str, kind: ConfigType, default: str, doc: str, rule: Rule | None) -> ConfigDef:
    return ConfigDef(PREFIX + name, kind, default, doc, rule=rule)


TABLE_CONFIGS: Final = (
    _table("commit.interval.ms", ConfigType.LONG, "60000",
           "Time between two commits of the topic's table.",
           Between(SHORTEST_INTERVAL_MS, LONG_MAX)),
    _table("delete.grace.ms", ConfigType.LONG, str(6 * HOUR_MS),
           "Delete files that no kept snapshot names after this time.", Between(0, LONG_MAX)),
    _table("enable", ConfigType.BOOLEAN, "false",
           "Keep the topic as an Iceberg table, too; ottla table run writes it.", None),
    _table("headers", ConfigType.BOOLEAN, "true",
           "Keep the headers of records in the table.", None),
    _table("hold.bytes", ConfigType.LONG, str(10 * GIB),
           "Retention keeps records that the table has not taken yet, up to so many bytes of a "
           "partition; 0: it does not wait.", Between(0, LONG_MAX)),
    _table("invalid", ConfigType.STRING, "dlq",
           "Records that do not fit the schema: dlq (a table beside), pause or drop.",
           OneOf(INVALID)),
    _table("keep.value", ConfigType.BOOLEAN, "false",
           "Keep the bytes of values beside their columns.", None),
    _table("key.format", ConfigType.STRING, KEY_FORMATS[0],
           "What keys are: binary; utf8; registry, with the schema that each key names. A key that "
           "is something else makes the record invalid.",
           OneOf(KEY_FORMATS)),
    _table("name", ConfigType.STRING, "",
           "Name of the table; empty: the topic's, with _ for . and -.",
           Matching("(?:[A-Za-z0-9_]{1,200})?", "orders_eu")),
    _table("on.conflict", ConfigType.STRING, CONFLICTS[0],
           "Values whose schema does not fit a column: dlq (as ottla.table.invalid says), "
           "new-column (name__type) or pause.",
           OneOf(CONFLICTS)),
    _table("partition", ConfigType.STRING, PARTITIONS[0],
           "How rows are divided into directories.", OneOf(PARTITIONS)),
    _table("retention.ms", ConfigType.LONG, "-1",
           "Drop days (hours, months) of the table that are older as a whole; -1: never.",
           Between(-1, LONG_MAX)),
    _table("snapshot.retention.ms", ConfigType.LONG, str(24 * HOUR_MS),
           "Forget snapshots that are older; 10 are kept.", Between(0, LONG_MAX)),
    _table("start", ConfigType.STRING, "earliest",
           "Where a new table begins: earliest, latest or a time.",
           Matching(r"earliest|latest|\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d))?",
                    "earliest, latest, 2026-11-01 or 2026-11-01T12:00Z")),
    _table("target.file.bytes", ConfigType.LONG, str(256 * MIB),
           "Start a new data file at about this size.", Between(16 * MIB, 1024 * MIB)),
    _table("value.format", ConfigType.STRING, "raw",
           "What values are: raw bytes; json, avro or protobuf of ottla.table.value.schema; "
           "registry, with the schema that each value names; registry-latest, with the newest "
           "one of the subject.",
           OneOf(VALUE_FORMATS)),
    _table("value.message", ConfigType.STRING, "",
           "Name of the Protobuf message; empty: the first one of the schema.", None),
    _table("value.schema", ConfigType.STRING, "",
           "The schema, or the columns of JSON as Spark's DDL: shop string, amount double.",
           None),
    _table("value.subject", ConfigType.STRING, "",
           "Subject of the registry; empty: the topic's name and -value.", None),
)  # fmt: skip


def _worker(
    name: str, kind: ConfigType, default: str | None, doc: str, rule: Rule | None = None,
    *, sensitive: bool = False,
) -> ConfigDef:  # fmt: skip
    return ConfigDef(
        PREFIX + name, kind, default, doc, rule=rule, dynamic=False, sensitive=sensitive
    )


TABLE_WORKER_CONFIGS: Final = (
    _worker("worker", ConfigType.STRING, "none",
            "child: the broker runs the table worker as a process of its own.",
            OneOf(("none", "child"))),
    _worker("warehouse", ConfigType.STRING, None,
            "Where that worker keeps files of tables; default: tables below rsm.config.url, or "
            "in the data directory."),
    _worker("catalog", ConfigType.STRING, None,
            "Its catalogue, sqlite:///FILE or postgresql://...; default: tables.db in the data "
            "directory.", sensitive=True),
    _worker("namespace", ConfigType.STRING, "ottla", "Namespace of its tables.",
            Matching("[A-Za-z0-9_]{1,200}", "ottla")),
    _worker("registry.url", ConfigType.STRING, None,
            "Schema registry that it asks; default: the broker's own."),
    _worker("nice", ConfigType.INT, "10",
            "Added to the priority number of its process: 19 runs only when nobody else does.",
            Between(0, 19)),
)  # fmt: skip
