"""A live tail: new records as they come, at most so many a second; memory stays constant.

A reader of its own connection begins at the end of the topic. In each second at most `rows` records
are shown (`tail_max_per_s`); a tail that has more to show by then goes to the end and counts what
it passed over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.browse import PREFETCH, RecordReader
from ottla.console.matching import matching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ottla.clock import Clock
    from ottla.console.clusters import ClusterSettings
    from ottla.console.decode.reading import Decoder
    from ottla.console.query import Query
    from ottla.console.views.messages import Message

TAKEN_PER_ROW: Final = 50
"""Records looked at in a second for each that may be shown: a filter may pass over most."""
TURN: Final = 1.0
SILENCE: Final = 10.0
"""Seconds without records after which an empty turn tells that the stream is alive."""


class Turn(NamedTuple):
    """New records, and how many were passed over since the last turn."""

    messages: tuple[Message, ...]
    passed: int


async def tail(
    cluster: ClusterSettings, query: Query, decoder: Decoder, clock: Clock, rows: int
) -> AsyncIterator[Turn]:
    """Turns without end; the first, empty one comes when the tail has found the end."""
    async with RecordReader(
        cluster.bootstrap,
        query.topic,
        start="latest",
        partitions=query.partitions,
        isolation_level=query.isolation,
        on_data_loss="latest",
        prefetch=PREFETCH,
        client_id="ottla-console-tail",
        security=cluster.security,
    ) as reader:
        yield Turn((), 0)
        while True:
            turn = await _turn(reader, query, decoder, clock, rows)
            if turn is not None:
                yield turn


async def _turn(
    reader: RecordReader, query: Query, decoder: Decoder, clock: Clock, rows: int
) -> Turn | None:
    shown: list[Message] = []
    passed = taken = 0
    ends = None
    while True:
        patience = SILENCE if ends is None else max(0.0, ends - clock.monotonic())
        try:
            async with asyncio.timeout(patience):
                records = await reader.read_many(rows)
        except TimeoutError:
            break
        ends = ends or clock.monotonic() + TURN
        taken += len(records)
        shown += await asyncio.to_thread(matching, query, decoder, records)
        if len(shown) >= rows or taken >= rows * TAKEN_PER_ROW:
            passed = max(0, len(shown) - rows)
            passed += sum((await reader.lag()).values())
            if passed:
                await reader.seek("latest")
            await asyncio.sleep(max(0.0, ends - clock.monotonic()))
            break
    shown.sort(key=lambda one: (one.timestamp_ms, one.partition, one.offset))
    return Turn(tuple(shown[:rows]), passed)
