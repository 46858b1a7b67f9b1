"""Options of the source, with the names of Spark's Kafka source: parsed and checked.

Rules:

- An option has the same meaning and default as there. Options refused there are refused here, with
  an error that names the option.
- Names are case-insensitive, as in Spark. An unknown one causes a warning with similar names, since
  Spark itself adds options of its own.
- If several options set a position, a time for all partitions wins over times by partition, and
  these over offsets.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import parse_qsl

from ottla.client.cluster.view import TopicPartition
from ottla.redaction import redact
from ottla.spark.client_settings import (
    ClientSettings,
    client_settings,
    known_settings,
    unknown_settings,
)
from ottla.spark.errors import BadOption
from ottla.spark.log.hooks import ON_SETTLED, hook_name
from ottla.spark.log.planning import Split
from ottla.spark.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtTime,
    Given,
    OfGroup,
    OfStore,
    Where,
    from_json,
)
from ottla.spark.share.options import NAMES as SHARE_NAMES
from ottla.spark.share.options import ShareOptions, parse_share
from ottla.spark.stores.options import Store, store_options
from ottla.spark.tables.settings import NAMES as TABLE_NAMES
from ottla.spark.tables.settings import TableSettings, table_settings
from ottla.spark.tier.settings import OPTION_PREFIX, TierSettings
from ottla.spark.typed_options import NAMES as TYPED_NAMES
from ottla.spark.typed_options import TypedOptions, parse_typed

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG: Final = logging.getLogger("ottla.spark")

Mode: TypeAlias = Literal["batch", "stream", "unknown"]
"""Spark asks for a schema before it says whether the query is batch or streaming."""

MEBIBYTE: Final = 1024 * 1024

NAMES: Final = (
    *("assign", "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets"),
    *("endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"),
    *("minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "includeHeaders", "columns"),
    *("readBatchRows", "readBatchBytes", "taskTargetRecords", "maxTasks", "longPollMs"),
    *("prefetchBytes", "verifyCrc", "metadataTtlMs", "offsetsGroup", "offsetStore"),
    *(
        "offsetStoreKey",
        "offsetStore.required",
        ON_SETTLED,
        "pushdown",
        "tier",
        "tierUrl",
        "tierMinBytes",
        "tierTopicId",
        "store",
    ),
    "redisField",
    *SHARE_NAMES,
    *TYPED_NAMES,
    *TABLE_NAMES,
)
# Spark adds these to the user's options.
_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", "pathglobfilter"})

_SELECTORS: Final = ("assign", "subscribe", "subscribePattern")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions a query reads: exactly one of these is set."""

    assign: frozenset[TopicPartition] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None

    def names(self) -> list[str] | None:
        """The topics; None with a pattern."""
        if self.assign is not None:
            return sorted({one.topic for one in self.assign})
        return None if self.subscribe is None else sorted(self.subscribe)


@dataclass(frozen=True, slots=True, repr=False)
class SourceOptions:
    """The parsed options of a source; picklable, and equal in every process of a query."""

    mode: Mode
    client: ClientSettings
    selection: Selection
    start: Where
    start_option: str
    end: Where
    end_option: str
    fail_on_data_loss: bool
    split: Split
    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_delay: float
    retries: int
    retry_interval: float
    poll_timeout: float
    long_poll: float
    metadata_ttl: float
    read_rows: int
    read_bytes: int
    prefetch: int
    verify_crc: bool
    offsets_group: str | None
    offset_store: str | None
    offset_store_key: str
    offset_store_required: bool
    on_settled: str | None
    include_headers: bool
    columns: tuple[str, ...] | None
    pushdown: bool
    share: ShareOptions | None
    store: Store
    redis_field: str
    typed: TypedOptions | None
    table: TableSettings | None

    def __repr__(self) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self))
        return redact(f"SourceOptions({', '.join(shown)})")

    @property
    def tier(self) -> TierSettings | None:
        """Where segments are read, if not from brokers alone."""
        return self.store.tier


class _Options:
    """The given options, by names in lower case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.all = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        value = self.all.get(name.lower())
        return None if value is None else str(value).strip()

    def flag(self, name: str, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise BadOption(f"{name} is true or false, not {value!r}")
        return value == "true"

    def number(self, name: str, *, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise BadOption(f"{name} is a whole number of {least} or more, not {text!r}")
        return number

    def or_default(self, name: str, default: int, *, least: int = 1) -> int:
        number = self.number(name, least=least)
        return default if number is None else number

    def json(self, name: str) -> Mapping[str, object]:
        text = self.text(name) or ""
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise BadOption(f"{name}: expected JSON by topic, got {text[:200]!r}")
        return found


def parse_source(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """Parse the options of one query; raises `BadOption` for the first invalid one."""
    options = _Options(given)
    _refuse(options, mode)
    store = store_options(options.all)
    client = client_settings(options.all, writes=False, has_brokers=store.has_brokers)
    selection = _selection(options)
    start, start_option = _start(options, mode)
    end, end_option = _end(options)
    longest, least = _limits(options)
    return SourceOptions(
        mode=mode,
        client=client,
        selection=selection,
        start=start,
        start_option=start_option,
        end=end,
        end_option=end_option,
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        split=Split(
            options.number("minPartitions", least=1),
            options.number("maxRecordsPerPartition", least=1),
            options.or_default("taskTargetRecords", Split().task_target),
            options.number("maxTasks", least=1),
        ),
        max_offsets=longest,
        min_offsets=least,
        max_bytes=options.number("maxBytesPerTrigger", least=1),
        max_delay=duration("maxTriggerDelay", options.text("maxTriggerDelay") or "15m"),
        retries=options.or_default("fetchOffset.numRetries", 3, least=0),
        retry_interval=options.or_default("fetchOffset.retryIntervalMs", 1000, least=0) / 1000,
        poll_timeout=options.or_default("kafkaConsumer.pollTimeoutMs", 120_000) / 1000,
        long_poll=options.or_default("longPollMs", 100, least=0) / 1000,
        metadata_ttl=options.or_default("metadataTtlMs", 5000, least=0) / 1000,
        read_rows=options.or_default("readBatchRows", 32768),
        read_bytes=min(options.or_default("readBatchBytes", 8 * MEBIBYTE), 1024 * MEBIBYTE),
        prefetch=options.or_default("prefetchBytes", 32 * MEBIBYTE),
        verify_crc=options.flag("verifyCrc", client.verify_crc),
        offsets_group=options.text("offsetsGroup"),
        offset_store=_offset_store(options.text("offsetStore")),
        offset_store_key=options.text("offsetStoreKey") or "spark",
        offset_store_required=options.flag("offsetStore.required", False),
        on_settled=hook_name(options.text(ON_SETTLED)),
        include_headers=options.flag("includeHeaders", False),
        columns=_columns(options.text("columns")),
        pushdown=options.flag("pushdown", False),
        share=parse_share(options.all, is_batch=mode == "batch"),
        store=store,
        redis_field=options.text("redisField") or "msg",
        typed=parse_typed(options.all, client, selection.names()),
        table=table_settings(options.all),
    )


def warn_unknown(given: Mapping[str, str], names: tuple[str, ...] = NAMES) -> list[str]:
    """A warning for each unknown option, with similar names."""
    lower = {name.lower(): name for name in names}
    options = {name.lower(): value for name, value in given.items()}
    unknown = [
        name
        for name in options
        if name not in lower
        and name not in _OF_SPARK
        and not name.startswith(("kafka.", OPTION_PREFIX))
    ]
    said = []
    for name in unknown + unknown_settings(options):
        near = difflib.get_close_matches(name, [*lower, *known_settings()], n=3)
        meant = ", ".join(lower.get(one, one) for one in near)
        said.append(f"option {name} is not known" + (f"; did you mean {meant}?" if near else ""))
    for sentence in said:
        LOG.warning("%s", sentence)
    return said


def duration(option: str, text: str) -> float:
    """Seconds of a time like 90s, 15m, 1h; a bare number is milliseconds, as in Spark."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|min|m|h|d)?", text.strip().lower())
    if found is None:
        raise BadOption(f"{option} is a time such as 500ms, 90s, 15m or 1h, not {text!r}")
    unit = "m" if found[2] == "min" else found[2] or "ms"
    return int(found[1]) * _UNITS[unit]


def _refuse(options: _Options, mode: Mode) -> None:
    if mode == "stream":
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if options.text(name) is not None:
                raise BadOption(f"{name} is for batch queries; a streaming query has no end")


def _limits(options: _Options) -> tuple[int | None, int | None]:
    longest = options.number("maxOffsetsPerTrigger", least=1)
    least = options.number("minOffsetsPerTrigger", least=1)
    if longest is not None and least is not None and least > longest:
        raise BadOption(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({longest})")
    return longest, least


def _offset_store(url: str | None) -> str | None:
    if url is not None and "lance" in dict(parse_qsl(url.partition("?")[2])):
        raise BadOption(
            "offsetStore: the LANCE layout holds numbers for streams, not names of topics; "
            "leave out ?lance="
        )
    return url


def _selection(options: _Options) -> Selection:
    given = [name for name in _SELECTORS if options.text(name) is not None]
    if not given and options.text("store") == "ss":
        return Selection(pattern=".*")
    if len(given) != 1:
        got = " and ".join(given) or "none"
        raise BadOption(f"give one of {', '.join(_SELECTORS)} to select topics, not {got}")
    text = options.text(given[0]) or ""
    if given[0] == "assign":
        return Selection(assign=_assign(options.json("assign")))
    if given[0] == "subscribe":
        names = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
        if not names:
            raise BadOption("subscribe names no topic: give topic,topic")
        return Selection(subscribe=names)
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(
            f"subscribePattern {text!r} is not a valid regular expression: {error}"
        ) from None
    if not text:
        raise BadOption("subscribePattern is empty: give a regular expression")
    return Selection(pattern=text)


def _assign(found: Mapping[str, object]) -> frozenset[TopicPartition]:
    named = set()
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(type(one) is int for one in partitions):
            raise BadOption(f'assign: expected {{"topic": [0, 1]}}, got {str(dict(found))[:200]}')
        named |= {TopicPartition(topic, one) for one in partitions}
    if not named:
        raise BadOption('assign names no partition: give {"topic": [0, 1]}')
    return frozenset(named)


def _start(options: _Options, mode: Mode) -> tuple[Where, str]:
    strategy = (options.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise BadOption(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}")
    by_time = _by_time(options, "starting", or_latest=strategy == "latest")
    if by_time is not None:
        return by_time
    name = "startingOffsets"
    text = options.text(name) or ("latest" if mode == "stream" else "earliest")
    if text.lower().startswith("group:") and text[len("group:") :]:
        return OfGroup(text[len("group:") :]), name
    if text.lower().startswith("store:") and text[len("store:") :]:
        if options.text("offsetStore") is None:
            raise BadOption("startingOffsets=store:KEY needs the option offsetStore: give its URL")
        return OfStore(text[len("store:") :]), name
    where = _offsets(options, name, text)
    if mode == "batch" and (
        where == AtEnd(LATEST) or (isinstance(where, Given) and LATEST in where.offsets.values())
    ):
        raise BadOption("startingOffsets cannot be latest (-1) in a batch query: give a beginning")
    return where, name


def _end(options: _Options) -> tuple[Where, str]:
    by_time = _by_time(options, "ending", or_latest=True)
    if by_time is not None:
        return by_time
    name = "endingOffsets"
    where = _offsets(options, name, options.text(name) or "latest")
    if where == AtEnd(EARLIEST) or (
        isinstance(where, Given) and EARLIEST in where.offsets.values()
    ):
        raise BadOption("endingOffsets cannot be earliest (-2): give an end, or latest (-1)")
    return where, name


def _by_time(options: _Options, which: str, *, or_latest: bool) -> tuple[AtTime, str] | None:
    name = f"{which}Timestamp"
    time = options.number(name, least=0)
    if time is not None:
        return AtTime(time, or_latest), name
    name = f"{which}OffsetsByTimestamp"
    if options.text(name) is None:
        return None
    return AtTime(from_json(options.json(name), option=name), or_latest), name


def _offsets(options: _Options, name: str, text: str) -> AtEnd | Given:
    ends = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in ends:
        return AtEnd(ends[text.lower()])
    offsets = from_json(options.json(name), option=name)
    if not offsets or min(offsets.values()) < EARLIEST:
        raise BadOption(f"{name}: offsets are 0 or more, -1 for latest or -2 for earliest")
    return Given(offsets)


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if not names:
        raise BadOption("columns names no column: give a list such as value,offset")
    return names
