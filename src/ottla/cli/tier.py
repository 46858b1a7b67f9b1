"""`ottla tier ...`: where tiered topics are, and whether what the store has of them is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Json,
    Timeout,
    complain,
    fail,
    key_values,
    security,
    with_admin,
)
from ottla.cli.output import print_json, print_list

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from ottla.cli.output import Cell
    from ottla.client.admin.admin import Admin
    from ottla.tier.catalogue.kafka_event_log import KafkaMetadataEventLog
    from ottla.tier.catalogue.segments import RemoteLogSegmentMetadata, TopicIdPartition
    from ottla.tier.store.storage_manager import RemoteStorageManager
    from ottla.tier.upkeep.tools import Folded

    T = TypeVar("T")

app = typer.Typer(help="Inspect and repair the remote tier of topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="The topic.")]
Topics = Annotated[list[str] | None, typer.Argument(help="The topics. [default: all tiered ones]")]
Partition = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="One partition only.")
]
Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The object store. [default: the broker's]"),
]
StoreOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--store-option",
        metavar="KEY=VALUE",
        help="A setting of the store, without rsm.config.: endpoint=http://...",
    ),
]


@app.command()
def status(
    topics: Topics = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of the broker's metrics, to show its errors, too."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show for each log which offsets are remote, their size, and the backlog of uploads.

    \b
    Examples:
        ottla tier status
        ottla tier status orders --metrics http://127.0.0.1:9100/metrics --json
    """
    from ottla.tier.upkeep.tools import statuses, tiered_topics

    errors = None if metrics is None else _errors(metrics)

    async def command(
        admin: Admin, folded: Folded, _: KafkaMetadataEventLog
    ) -> tuple[list[dict[str, Cell]], int]:
        found = await statuses(admin, folded, await tiered_topics(admin, topics or ()))
        return [{**one._asdict(), "lag": one.lag} for one in found], folded.undecodable

    rows, undecodable = _with_catalogue(bootstrap, timeout, command)
    if as_json:
        print_json({"partitions": rows, "undecodable_events": undecodable, "errors": errors})
    else:
        columns = ("topic", "partition", "log_start", "local_start", "highest_remote", "log_end",
                   "lag", "segments", "remote_bytes", "unfinished", "deleting")  # fmt: skip
        print_list("tiered topics", rows, columns, as_json=False)
        for where, error in (errors or {}).items():
            typer.echo(f"{where}: {error}")
        if undecodable:
            typer.echo(f"{undecodable} records of the metadata topic are no events")
    if errors:
        raise typer.Exit(1)


@app.command("list")
def list_(
    topic: Topic,
    partition: Partition = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """List a topic's remote segments, as the metadata topic has them.

    \b
    Examples:
        ottla tier list orders
        ottla tier list orders --partition 3 --json
    """

    async def command(
        admin: Admin, folded: Folded, _: KafkaMetadataEventLog
    ) -> list[dict[str, Cell]]:
        tips = await _tips(admin, topic, partition)
        return [_row(one) for tip in tips for one in folded.segments(tip)]

    rows = _with_catalogue(bootstrap, timeout, command)
    columns = ("partition", "start_offset", "end_offset", "bytes", "state", "segment_id")
    print_list("remote segments", rows, columns, as_json=as_json)


@app.command()
def verify(
    topic: Topic,
    partition: Partition = None,
    read_all: Annotated[
        bool, typer.Option("--read-all", help="Read every byte and compare checksums.")
    ] = False,
    store: Store = None,
    store_option: StoreOptions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Compare the store with the metadata topic; status 1 if something is missing or damaged.

    \b
    Examples:
        ottla tier verify orders
        ottla tier verify orders --read-all --store s3://bucket/prefix
    """
    from ottla.tier.upkeep.tools import verify as check

    async def command(
        admin: Admin, folded: Folded, _: KafkaMetadataEventLog
    ) -> list[dict[str, Cell]]:
        storage = await _storage(admin, store, store_option)
        segments = [
            one for tip in await _tips(admin, topic, partition) for one in folded.segments(tip)
        ]
        return [
            {**_row(one), "problem": None if problem is None else problem.what}
            async for one, problem in check(storage, segments, read_all=read_all)
        ]

    rows = _with_catalogue(bootstrap, timeout, command)
    bad = [row for row in rows if row["problem"] is not None]
    if as_json:
        print_json(rows)
    else:
        for row in bad:
            complain(row["problem"])
        typer.echo(f"{len(rows)} segments, {len(bad)} with problems")
    if bad:
        raise typer.Exit(1)


@app.command()
def repair(
    topic: Topic,
    partition: Partition = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    store: Store = None,
    store_option: StoreOptions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Repair differences between the catalogue and the store.

    Segments that are whole in the store, and that the log needs, are put back into the catalogue; a
    .meta that is missing or damaged is made again from its .log. What is lost is named, and the
    status is 1.

    \b
    Examples:
        ottla tier repair orders --dry-run
        ottla tier repair orders --store file:///var/lib/segments
    """
    from ottla.clock import SYSTEM
    from ottla.tier.upkeep.repair import Cure, find_defects, mend

    async def command(
        admin: Admin, folded: Folded, event_log: KafkaMetadataEventLog
    ) -> list[dict[str, Cell]]:
        storage = await _storage(admin, store, store_option)
        starts = await admin.list_offsets([topic], "earliest")
        found = []
        for tip in await _tips(admin, topic, partition):
            start = next(one.offset for at, one in starts.items() if at.partition == tip.partition)
            found += await find_defects(storage, folded, tip, start)
        if not dry_run:
            for one in found:
                await mend(storage, event_log, one, now_ms=SYSTEM.wall_ms())
        return [{**_row(one.metadata), "cure": one.cure.value} for one in found]

    rows = _with_catalogue(bootstrap, timeout, command)
    columns = ("partition", "start_offset", "end_offset", "bytes", "segment_id", "cure")
    print_list("segments to repair", rows, columns, as_json=as_json)
    lost = [row for row in rows if row["cure"] == Cure.LOST.value]
    if lost:
        complain(f"{len(lost)} segments are lost: bring their .log objects back into the store")
        raise typer.Exit(1)


@app.command()
def plan(
    topic: Topic,
    partition: Annotated[int, typer.Option("--partition", min=0, metavar="N")] = 0,
    start: Annotated[int | None, typer.Option(metavar="OFFSET", help="First offset.")] = None,
    end: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="Offset after the last.")
    ] = None,
    store: Store = None,
    store_option: StoreOptions = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: Json = False,
) -> None:
    """Show which bytes of which objects hold these offsets; with --store no broker is needed.

    \b
    Examples:
        ottla tier plan orders --partition 0 --start 1000 --end 5000
        ottla tier plan orders --store s3://bucket/prefix --json
    """
    import asyncio

    from ottla.tier.reader import ListingSource, RemoteReader

    async def from_store(storage: RemoteStorageManager) -> list[dict[str, Cell]]:
        planned = await RemoteReader(storage, ListingSource(storage)).plan(
            topic, partition, start_offset=start, end_offset=end, isolation_level="read_uncommitted"
        )
        return [
            {
                "key": one.key,
                "start": one.start,
                "end": one.end,
                "first_offset": one.first_offset,
                "last_offset": one.last_offset,
            }
            for one in planned.splits
        ]

    async def command(admin: Admin) -> list[dict[str, Cell]]:
        return await from_store(await _storage(admin, None, store_option))

    if store is None:
        rows = _told(lambda: with_admin(bootstrap, timeout, command))
    else:
        rows = _told(lambda: asyncio.run(from_store(_open(store, store_option))))
    columns = ("key", "start", "end", "first_offset", "last_offset")
    print_list("bytes", rows, columns, as_json=as_json)


def _row(one: RemoteLogSegmentMetadata) -> dict[str, Cell]:
    from ottla.log.checkpoints import encode_id

    return {
        "topic": one.tip.topic,
        "partition": one.tip.partition,
        "start_offset": one.start_offset,
        "end_offset": one.end_offset,
        "bytes": one.segment_size,
        "max_timestamp_ms": one.max_timestamp_ms,
        "state": one.state.name,
        "segment_id": encode_id(one.id.id),
    }


def _with_catalogue(
    bootstrap: str,
    timeout: float,
    command: Callable[[Admin, Folded, KafkaMetadataEventLog], Awaitable[T]],
) -> T:
    """Run a command with the catalogue of this moment."""

    async def run(admin: Admin) -> T:
        from ottla.tier.upkeep.tools import fold, open_catalogue

        event_log = await open_catalogue(admin, bootstrap, security())
        try:
            return await command(admin, await fold(event_log), event_log)
        finally:
            await event_log.close()

    return _told(lambda: with_admin(bootstrap, timeout, run))


def _told(run: Callable[[], T]) -> T:
    """End the program with an error message if the store fails."""
    from ottla.objects.errors import RemoteStorageError

    try:
        return run()
    except RemoteStorageError as error:
        fail(error)


async def _tips(admin: Admin, topic: str, partition: int | None) -> list[TopicIdPartition]:
    from uuid import UUID

    from ottla.tier.catalogue.segments import TopicIdPartition

    (found,) = await admin.describe_topics([topic])
    numbers = range(len(found.partitions))
    if partition is not None and partition not in numbers:
        raise typer.BadParameter(f"{topic} has {len(numbers)} partitions", param_hint="--partition")
    topic_id = UUID(bytes=bytes(found.id))
    wanted = numbers if partition is None else [partition]
    return [TopicIdPartition(topic_id, topic, number) for number in wanted]


async def _storage(
    admin: Admin, store: str | None, options: list[str] | None
) -> RemoteStorageManager:
    """The store that was named, or the one that the broker names."""
    if store is None:
        brokers = (await admin.describe_cluster()).brokers
        settings = await admin.describe_configs("broker", str(brokers[0].id))
        store = next((one.value for one in settings if one.name == "rsm.config.url"), None)
    if store is None:
        fail("the broker has no object store; name one with --store")
    return _open(store, options)


def _open(store: str, options: list[str] | None) -> RemoteStorageManager:
    from ottla.objects.location import PREFIX, URL_KEY, BadLocation, open_store, parse_location
    from ottla.tier.store.storage_manager import RemoteStorageManager

    given = key_values(options or (), "--store-option")
    try:
        location = parse_location({URL_KEY: store} | {PREFIX + k: v for k, v in given.items()})
    except BadLocation as error:
        raise typer.BadParameter(str(error), param_hint="--store") from None
    return RemoteStorageManager(open_store(location), location.prefix, "")


def _errors(url: str) -> dict[str, str]:
    """The errors that a broker reports, by place."""
    import urllib.request
    from urllib.error import HTTPError

    from prometheus_client.parser import text_string_to_metric_families

    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} is not http://HOST:PORT/metrics", param_hint="--metrics")
    try:
        with urllib.request.urlopen(url, timeout=DEFAULT_TIMEOUT) as answer:
            text = answer.read().decode()
    except OSError as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        fail(f"{url} does not answer: {error}; start the broker with --metrics-port")
    return {
        sample.labels["where"]: sample.labels["error"]
        for family in text_string_to_metric_families(text)
        if family.name == "ottla_tier_error"
        for sample in family.samples
    }
