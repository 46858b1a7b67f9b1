"""`ottla share-consume`: take records of a topic as a member of a share group, and print them.

A record is acknowledged after it was printed. If the output ends early, records that were not
printed are released.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ottla.cli.common import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    Bootstrap,
    Source,
    complain,
    parse_source,
    security,
    sentences,
)
from ottla.cli.records import JsonLines, Key, Printer, Raw, ShowHeaders

if TYPE_CHECKING:
    from ottla.client.share.consumer import ShareConsumer
    from ottla.client.share.types import Acknowledged, ShareRecord

# Records that are locked, printed and acknowledged at a time.
RECORDS_AT_ONCE = 500

EXAMPLES = """\b
Examples:
    ottla share-consume orders --group workers --from earliest
    ottla share-consume orders --group workers --follow --json
    ottla share-consume orders --group workers --max-records 1 --ack reject
"""


def share_consume(
    source: Source,
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="The share group.")],
    start: Annotated[
        Literal["earliest", "latest"] | None,
        typer.Option("--from", help="Where a new group starts. [default: the broker's]"),
    ] = None,
    ack: Annotated[
        Literal["accept", "release", "reject"],
        typer.Option(
            "--ack",
            help="accept: done. release: deliver again, counted. reject: give up.",
        ),
    ] = "accept",
    max_records: Annotated[
        int | None, typer.Option("--max-records", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more, until Ctrl-C.")] = False,
    key: Key = False,
    headers: ShowHeaders = False,
    as_json: JsonLines = False,
    raw: Raw = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.1,
            metavar="SECONDS",
            help="Give up on a broker after this time; without --follow also on new records.",
        ),
    ] = DEFAULT_TIMEOUT,
) -> None:
    """Print records as a member of a share group, and acknowledge them."""
    if not group:
        raise typer.BadParameter("--group is empty; name the share group", param_hint="--group")
    if ack == "release" and max_records is None:
        raise typer.BadParameter(
            "with --ack release records are delivered again at once; add --max-records N",
            param_hint="--ack",
        )
    printer: Printer[ShareRecord] = Printer(
        as_json=as_json,
        raw=raw,
        key=key,
        headers=headers,
        extra={"delivery_count": lambda record: record.delivery_count},
    )
    where, topic = parse_source(source, bootstrap)
    refused: list[Acknowledged] = []

    def heard(one: Acknowledged) -> None:
        if one.error is not None:
            refused.append(one)

    async def run() -> None:
        from ottla.client.admin.admin import Admin
        from ottla.client.share.consumer import ShareConsumer

        async with Admin(where, api_timeout=timeout, security=security()) as admin:
            # Fail at once if no broker is running.
            await admin.connect()
        async with ShareConsumer(
            where,
            group=group,
            topics=[topic],
            ack_mode="explicit",
            acquire_mode="batch_optimized" if max_records is None else "record_limit",
            auto_offset_reset=start,
            max_poll_records=min(max_records or RECORDS_AT_ONCE, RECORDS_AT_ONCE),
            on_acknowledge=heard,
            api_timeout=timeout,
            security=security(),
        ) as consumer:
            await _take(consumer, printer, ack, max_records, math.inf if follow else timeout)

    with sentences(), suppress(KeyboardInterrupt):
        import asyncio

        asyncio.run(run())
    for one in refused:
        complain(f"offsets {one.first_offset} to {one.last_offset}: {one.error}")
    if refused:
        raise typer.Exit(1)


async def _take(
    consumer: ShareConsumer,
    printer: Printer[ShareRecord],
    ack: Literal["accept", "release", "reject"],
    max_records: int | None,
    patience: float,
) -> None:
    left = sys.maxsize if max_records is None else max_records
    while left > 0 and (records := await consumer.poll(patience)):
        printer.records(records[:left])
        for number, record in enumerate(records):
            consumer.acknowledge(record, ack if number < left else "release")
        left -= len(records)
