"""A topic's table as a frame: Parquet files that Spark reads itself, united with the log's tail.

Rules:

- The driver asks for the newest pointer and the ends of the log once, when the frame is made. Every
  action on the frame reads the same snapshot and the same offsets.
- Files are an explicit list: the table never has delete files, so the list is the table.
- The tail is `format("ottla")` over exact offsets, `read_committed`; it is left out of the plan if
  it is empty. Records that the table would put among its dead letters are left out.
- Both sides have the same names, types and order. `_day` is there if the files are in directories
  of days.
- A stream has the same rows and the columns that the table had when it was made. Old offsets come
  from the files, through Python workers, so that offsets and checkpoints are those of the log.
- Nothing but `spark.read` and `spark.readStream` is used, so it works with Spark Connect.
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
from ottla.spark.offsets import EARLIEST
from ottla.spark.tables.backend import FileView
from ottla.spark.tables.settings import ONLY, store_settings
from ottla.spark.typed_options import table_option
from ottla.tables.archive import DAY, day_roots
from ottla.tables.reading import Pinned, pin
from ottla.tables.topic_table import DEFAULT_BOOTSTRAP, blocking
from ottla.tables.views import parse_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

    from ottla.tables.format import DataFile
    from ottla.tables.views import TableView

    At = str | datetime | Mapping[str, int] | Mapping[int, int]

LOG: Final = logging.getLogger("ottla.spark")

MAX_FILES: Final = 20_000
"""Spark asks the store for the status of each file: more than a minute for more files."""

NO_FILE_SYSTEM: Final = ("No FileSystem for scheme", "S3AFileSystem not found")
"""What Hadoop says of a store whose jar is missing."""

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
    pinned = pinned_topic(
        given,
        topic,
        at=at,
        since=since,
        until=until,
        tail=tail,
        accept_loss=not fail_on_data_loss,
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


def stream(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
    starting: str | Mapping[str, int] | Mapping[int, int] = "earliest",
    columns: Sequence[str] | None = None,
    where: str | None = None,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """A streaming frame of the topic's rows: first those of the table's files, then the log's.

    `starting` is where a new query begins: `earliest` is where the table begins, `latest` the end
    of the log; or offsets by partition. `options` are options of `format("ottla")`, such as
    `maxOffsetsPerTrigger`.
    """
    given = _given(bootstrap, options)
    if isinstance(starting, str) and starting not in ("earliest", "latest"):
        raise BadOption(
            "starting is earliest, latest or offsets by partition such as {0: 1200}, not "
            f"{starting!r:.60}"
        )
    pinned = pinned_topic(given, topic, accept_loss=True)
    start = starting if isinstance(starting, str) else starting_offsets(pinned, starting)
    given["failOnDataLoss"] = str(fail_on_data_loss).lower()
    frame = stream_of(spark, pinned, {"startingOffsets": start, **given})
    if where is not None:
        frame = frame.where(where)
    return frame if columns is None else frame.select(*_checked(columns, frame))


def starting_offsets(pinned: Pinned, at: Mapping[str, int] | Mapping[int, int]) -> str:
    """The option `startingOffsets`; partitions that are not named start at their first record."""
    try:
        named = parse_offsets("starting", at)
    except BadArgument as error:
        raise BadOption(str(error)) from None
    every = {one: named.pop(one, EARLIEST) for one in pinned.view.cut}
    if named:
        raise BadOption(
            f"starting: partition {min(named)} does not exist; there are {len(every)} partitions"
        )
    offsets = {str(one): every[one] for one in sorted(every)}
    return json.dumps({pinned.view.topic: offsets})


def stream_of(spark: SparkSession, pinned: Pinned, given: Mapping[str, str]) -> DataFrame:
    """All rows of a pinned topic, and those that come; `given` says where it starts."""
    options = {
        "table": "auto",
        **given,
        "subscribe": pinned.view.topic,
        "kafka.isolation.level": "read_committed",
    }
    return _of_log(spark.readStream, pinned, frame_schema(pinned), options, as_rows=True)


def _given(bootstrap: str | None, options: Mapping[str, str] | None) -> dict[str, str]:
    given = dict(options or {})
    name = "kafka.bootstrap.servers"
    if bootstrap is not None:
        given[name] = bootstrap
    given.setdefault(name, os.environ.get("OTTLA_BOOTSTRAP", DEFAULT_BOOTSTRAP))
    return given


def pinned_topic(given: Mapping[str, str], topic: str, **choice: Any) -> Pinned:
    """What a reader with these options of `format("ottla")` sees of a topic now."""
    lower = {name.lower(): text for name, text in given.items()}
    settings = client_settings(lower, writes=False)
    try:
        return blocking(
            pin(
                settings.bootstrap,
                topic,
                security=settings.security,
                api_timeout=settings.api_timeout,
                registry_url=lower.get("schemaregistryurl"),
                store=store_settings(lower),
                **choice,
            )
        )
    except BadArgument as error:
        raise BadOption(str(error)) from None


def rows_of(
    spark: SparkSession, pinned: Pinned, given: Mapping[str, str], *, fail_on_data_loss: bool
) -> DataFrame:
    """All rows of a pinned topic."""
    view = pinned.view
    if len(view.files) > MAX_FILES:
        raise BadOption(
            f"the table of {view.topic!r} has {len(view.files):,} files to read, more than "
            f"{MAX_FILES:,}: compact it, or read less with since= and until="
        )
    schema = frame_schema(pinned)
    parts = [_bounded(one, view) for one in _archive(spark, pinned, schema, given)]
    if view.tail or not parts:
        parts.append(_tail(spark, pinned, schema, given, fail_on_data_loss=fail_on_data_loss))
    frame = reduce(lambda one, other: one.union(other), parts)
    return _between(frame, view)


def _archive(
    spark: SparkSession, pinned: Pinned, schema: StructType, given: Mapping[str, str]
) -> list[DataFrame]:
    """The rows of the files, by Spark's own reader if it can open them."""
    files = pinned.view.files
    if not files:
        return []
    try:
        return list(_by_spark(spark, files, schema))
    except Exception as error:
        if not any(one in str(error) for one in NO_FILE_SYSTEM):
            raise
    LOG.warning(
        "this Spark cannot open %s: Python workers read the files of the table, which takes more "
        "processor time. With the jar of the store (hadoop-aws for S3) in spark.jars.packages "
        "Spark reads them itself",
        files[0].url,
    )
    options = {**given, "subscribe": pinned.view.topic, "table": ONLY}
    options["tableView"] = FileView.of(pinned).dump()
    options = _as_table(options, pinned)
    rows = spark.read.format("ottla").options(**options).load()
    return [_selected(rows, _of_rows(rows), schema)]


def _by_spark(
    spark: SparkSession, files: Sequence[DataFile], schema: StructType
) -> Iterator[DataFrame]:
    roots = day_roots(files)
    for root in sorted(roots or {""}):
        within = f"{root}/{DAY}=" if root else ""
        urls = [_hadoop(one.url) for one in files if one.url.startswith(within)]
        reader = spark.read.schema(schema)
        if root:
            reader = reader.option("basePath", _hadoop(root))
        frame = reader.parquet(*urls)
        if not files[0].url.startswith("file:"):
            _ = frame.schema  # a Connect session opens the file system when it is asked
        yield frame


def _hadoop(url: str) -> str:
    """The URL as Hadoop's file systems know it."""
    return f"s3a{url.removeprefix('s3')}" if url.startswith("s3://") else url


def frame_schema(pinned: Pinned) -> StructType:
    """The columns of a topic's frame: those of its table, and `_day` if it is divided by days."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import DateType, StructField, StructType

    fields = [
        StructField(one.name, one.dataType, nullable=True)
        for one in from_arrow_schema(pinned.columns).fields
    ]
    if day_roots(pinned.view.files) is not None:
        fields.append(StructField(DAY, DateType()))
    return StructType(fields)


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
    return _of_log(spark.read, pinned, schema, options, as_rows=False)


def _of_log(
    reader: DataFrameReader | DataStreamReader,
    pinned: Pinned,
    schema: StructType,
    options: dict[str, str],
    *,
    as_rows: bool,
) -> DataFrame:
    """What `format("ottla")` reads with these options, as rows of the table.

    `as_rows`: files of the table may be read, too, and may not have the bytes of records.
    """
    from pyspark.sql.functions import expr

    made_by = pinned.settings
    if made_by is None or (not made_by.has_letters and not as_rows):
        for name in [one for one in options if one.lower().startswith("schemaregistry")]:
            del options[name]  # no value needs it
        log = reader.format("ottla").options(**options, includeHeaders="true").load()
        found = {name: expr(text) for name, text in _OF_LOG.items()}
    else:
        log = reader.format("ottla").options(**_as_table(options, pinned)).load()
        found = _of_rows(log)
    if made_by is not None and not made_by.headers:
        del found["_headers"]
    return _selected(log, found, schema)


def _as_table(options: Mapping[str, str], pinned: Pinned) -> dict[str, str]:
    """Options with which `format("ottla")` gives rows of the table."""
    found = {**options, "valueFormat": "table", "valueTable": table_option(pinned)}
    if not any(one.lower() == "schemaregistryurl" for one in options):
        found["schemaRegistryUrl"] = pinned.registry_url or ""
    return found


def _of_rows(rows: DataFrame) -> dict[str, Column]:
    """The columns of rows of the table."""
    from pyspark.sql.functions import expr

    found = {name: rows[f"`{name.replace('`', '``')}`"] for name in rows.columns}
    return {**found, DAY: expr(_DAY.format("_timestamp"))}


def _selected(rows: DataFrame, found: Mapping[str, Column], schema: StructType) -> DataFrame:
    from pyspark.sql.functions import lit

    return rows.select(
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
