"""A topic's table as a frame: Parquet files that Spark reads itself, united with the log's tail.

Rules:

- The driver asks for the newest pointer and the ends of the log once, when the frame is made. Every
  action on the frame reads the same snapshot and the same offsets.
- Files are an explicit list: the table never has delete files, so the list is the table.
- The tail is `format("ottla")` over exact offsets, `read_committed`; it is left out of the plan if
  it is empty. Records that the table would put among its dead letters are left out.
- Both sides have the same names, types and order. `_day` is there if the files are in directories
  of days.
- Nothing but `spark.read` is used, so it works with Spark Connect.
"""

from __future__ import annotations

import json
import logging
import os
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, Literal

from ottla.client.errors import BadArgument
from ottla.metadata.names import table_name
from ottla.spark.client_settings import client_settings
from ottla.spark.errors import BadOption
from ottla.spark.typed_options import table_option
from ottla.tables.archive import DAY, day_roots
from ottla.tables.reading import Pinned, pin
from ottla.tables.topic_table import DEFAULT_BOOTSTRAP, blocking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.spark.client_settings import ClientSettings
    from ottla.tables.views import TableView

    At = str | datetime | Mapping[str, int] | Mapping[int, int]

LOG: Final = logging.getLogger("ottla.spark")

MAX_FILES: Final = 20_000
"""Spark asks the store for the status of each file: more than a minute for more files."""

MICROS_OF_A_DAY: Final = 86_400_000_000


def table(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    at: At | None = None,
    columns: Sequence[str] | None = None,
    tail: bool = True,
    where: str | None = None,
    mode: Literal["all", "latest"] = "all",
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """A frame of the topic's rows, archive and tail, as of now.

    `since` and `until` choose rows by `_timestamp`, `at` ends the frame at offsets or at a time,
    `where` is a condition in SQL. `tail=False` reads the table alone. `mode="latest"` keeps the
    last row of each key, without tombstones. `options` are options of `format("ottla")`, such as
    `kafka.security.protocol` and `schemaRegistryUrl`.
    """
    if mode not in ("all", "latest"):
        raise BadOption(f"mode is all or latest, not {mode!r}")
    given = _given(bootstrap, options)
    settings = client_settings({name.lower(): text for name, text in given.items()}, writes=False)
    try:
        registry = {name.lower(): text for name, text in given.items()}.get("schemaregistryurl")
        pinned = _pinned(settings, topic, at, since, until, tail, not fail_on_data_loss, registry)
    except BadArgument as error:
        raise BadOption(str(error)) from None
    if len(pinned.view.files) > MAX_FILES:
        raise BadOption(
            f"the table of {topic!r} has {len(pinned.view.files):,} files to read, more than "
            f"{MAX_FILES:,}: compact it, or read less with since= and until="
        )
    frame = rows_of(spark, pinned, given, fail_on_data_loss=fail_on_data_loss)
    if mode == "latest":
        frame = _latest(frame)
    if where is not None:
        frame = frame.where(where)
    return frame if columns is None else frame.select(*_checked(columns, frame))


def views(spark: SparkSession, topics: Iterable[str], **arguments: Any) -> dict[str, DataFrame]:
    """Temporary views of these topics, for SQL; `.` and `-` in names become `_`."""
    frames = {}
    for topic in topics:
        frame = frames[topic] = table(spark, topic, **arguments)
        frame.createOrReplaceTempView(table_name(topic))
    return frames


def _given(bootstrap: str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    given = dict(options or {})
    name = "kafka.bootstrap.servers"
    if bootstrap is not None:
        given[name] = bootstrap
    given.setdefault(name, os.environ.get("OTTLA_BOOTSTRAP", DEFAULT_BOOTSTRAP))
    return given


def _pinned(
    settings: ClientSettings,
    topic: str,
    at: At | None,
    since: str | datetime | None,
    until: str | datetime | None,
    tail: bool,
    accept_loss: bool,
    registry_url: str | None,
) -> Pinned:
    return blocking(
        pin(
            settings.bootstrap,
            topic,
            at=at,
            since=since,
            until=until,
            tail=tail,
            accept_loss=accept_loss,
            security=settings.security,
            api_timeout=settings.api_timeout,
            registry_url=registry_url,
        )
    )


def rows_of(
    spark: SparkSession, pinned: Pinned, given: Mapping[str, str], *, fail_on_data_loss: bool
) -> DataFrame:
    """All rows of a pinned topic."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import DateType, StructField, StructType

    view = pinned.view
    roots = day_roots(view.files)
    fields = [
        StructField(one.name, one.dataType, nullable=True)
        for one in from_arrow_schema(pinned.columns).fields
    ]
    if roots is not None:
        fields.append(StructField(DAY, DateType()))
    schema = StructType(fields)
    parts = []
    for root in sorted(roots or {""}) if view.files else ():
        within = f"{root}/{DAY}=" if root else ""
        urls = [one.url for one in view.files if one.url.startswith(within)]
        reader = spark.read.schema(schema)
        if root:
            reader = reader.option("basePath", root)
        parts.append(_bounded(reader.parquet(*urls), view))
    if view.tail or not parts:
        parts.append(_tail(spark, pinned, schema, given, fail_on_data_loss=fail_on_data_loss))
    frame = reduce(lambda one, other: one.union(other), parts)
    return _between(frame, view)


def _bounded(archive: DataFrame, view: TableView) -> DataFrame:
    """The rows of the files that `at` leaves."""
    from pyspark.sql.functions import col

    if view.bounds is None:
        return archive
    below = [
        (col("_partition") == number) & (col("_offset") < end)
        for number, end in view.bounds.items()
        if end > 0
    ]
    return archive.where(reduce(or_, below)) if below else archive.limit(0)


def _between(frame: DataFrame, view: TableView) -> DataFrame:
    from pyspark.sql.functions import col, lit

    if view.since is not None:
        frame = frame.where(col("_timestamp") >= lit(view.since))
    if view.until is not None:
        frame = frame.where(col("_timestamp") < lit(view.until))
    return frame


def _tail(
    spark: SparkSession,
    pinned: Pinned,
    schema: StructType,
    given: Mapping[str, str],
    *,
    fail_on_data_loss: bool,
) -> DataFrame:
    """The rows that are in the log alone."""
    from pyspark.sql.functions import expr, lit

    view = pinned.view
    if not view.tail:
        return spark.createDataFrame([], schema)
    ranges = {
        "assign": [one.partition for one in view.tail],
        "startingOffsets": {str(one.partition): one.first for one in view.tail},
        "endingOffsets": {str(one.partition): one.end for one in view.tail},
    }
    options = {
        **given,
        **{name: json.dumps({view.topic: value}) for name, value in ranges.items()},
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    made_by = pinned.settings
    if made_by is None or (made_by.value_format == "raw" and made_by.key_format == "binary"):
        for name in [one for one in options if one.lower().startswith("schemaregistry")]:
            del options[name]  # no value needs it
        log = spark.read.format("ottla").options(**options, includeHeaders="true").load()
        named = [(name, expr(text)) for name, text in _OF_LOG.items()]
    else:
        options["valueFormat"] = "table"
        options["valueTable"] = table_option(pinned)
        if not any(one.lower() == "schemaregistryurl" for one in options):
            options["schemaRegistryUrl"] = pinned.registry_url or ""
        log = spark.read.format("ottla").options(**options).load()
        named = [(name, log[f"`{name.replace('`', '``')}`"]) for name in log.columns]
        named.append((DAY, expr(_DAY.format("_timestamp"))))
    found = dict(named)
    if made_by is not None and not made_by.headers:
        del found["_headers"]
    return log.select(
        *(
            found.get(one.name, lit(None)).cast(one.dataType).alias(one.name)
            for one in schema.fields
        )
    )


# Whole days since 1970 in UTC, whatever the session's time zone is; `div` alone rounds to zero.
_DAY: Final = (
    "date_from_unix_date(cast((unix_micros({0}) - pmod(unix_micros({0}), "
    f"{MICROS_OF_A_DAY}L)) div {MICROS_OF_A_DAY}L as int))"
)
# What each column of a table is in a record of the log.
_OF_LOG: Final = {
    "value": "value",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_timestamp_type": "timestampType",
    "_key": "key",
    "_headers": "headers",
    "_tombstone": "value is null",
    DAY: _DAY.format("timestamp"),
}


def _latest(frame: DataFrame) -> DataFrame:
    """The last row of each key; a key whose last record is a tombstone has none."""
    from pyspark.sql.functions import col, max_by, struct

    last = frame.groupBy("_partition", "_key").agg(
        max_by(struct(*frame.columns), col("_offset")).alias("last")
    )
    return last.where(~col("last._tombstone")).select("last.*")


def _checked(columns: Sequence[str], frame: DataFrame) -> list[str]:
    unknown = [one for one in columns if one not in frame.columns]
    if unknown:
        raise BadOption(f"columns: {', '.join(unknown)} are not of {', '.join(frame.columns)}")
    return [f"`{one.replace('`', '``')}`" for one in columns]
