"""Verdicts in a topic: values of JSON, read when a batch is settled.

Rules:

- The end of a batch carries where the topic ended when the batch was planned. Every run of its job
  writes later than that, so reading for the batch starts there: only Spark's checkpoint has to
  survive a crash.
- If the place is unknown or already deleted, reading starts at the topic's beginning.
- Reading ends at the current high watermark. It waits for open transactions, because they may
  contain verdicts of the batch; aborted records are ignored.
- Only verdicts on the requested offsets are kept. An invalid value is skipped, logged and counted.
- A topic that does not exist has no verdicts.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.client.cluster.view import TopicPartition
from ottla.client.errors import kafka_error
from ottla.client.reader.reader import Reader
from ottla.spark.cluster import make_client, offsets_at
from ottla.spark.errors import NoProgress
from ottla.spark.offsets import EARLIEST, LATEST
from ottla.spark.options import LOG, SourceOptions
from ottla.spark.share.ranges import Spans, common, plus
from ottla.spark.share.verdicts import FORM, as_spans, parse_verdict
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.reader.types import Record
    from ottla.spark.offsets import Offsets

PREFETCH: Final = 4 * 1024 * 1024  # a batch's verdicts are few, as a rule


class VerdictTopic:
    """The topic of one query, read on the loop of its process."""

    def __init__(self, options: SourceOptions, topic: str) -> None:
        self.bad = 0
        """How many values were not valid verdicts."""
        self._topic = topic
        self._patience = options.poll_timeout
        # The end is the high watermark, whatever transactions are open before it.
        self._settings = replace(options.client, isolation="read_uncommitted")
        # A separate client: a waiting fetch delays later requests on its connection.
        self._client = make_client(options.client)

    async def ends(self) -> Offsets:
        """Where the topic ends now."""
        view = await self._client.retry(lambda: self._client.refresh([self._topic]))
        topic = view.topics.get(self._topic)
        if topic is None:
            code = view.missing.get(self._topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise kafka_error(code, f"read share.verdicts from topic {self._topic!r}")
            return {}
        places = [TopicPartition(self._topic, one.index) for one in topic.partitions]
        return await offsets_at(self._client, self._settings, dict.fromkeys(places, LATEST))

    async def read(self, since: Mapping[TopicPartition, int], wanted: Spans) -> Spans:
        """The wanted offsets that have verdicts."""
        ends = await self.ends()
        firsts = await offsets_at(self._client, self._settings, dict.fromkeys(ends, EARLIEST))
        start: dict[int, int] = {}
        for place, end in ends.items():
            begin = since.get(place, EARLIEST)
            begin = begin if firsts[place] <= begin <= end else firsts[place]
            if begin < end:
                start[place.partition] = begin
        if not start:
            return {}
        stop = {place.partition: end for place, end in ends.items() if place.partition in start}
        return await self._read(start, stop, wanted)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _read(
        self, start: Mapping[int, int], stop: Mapping[int, int], wanted: Spans
    ) -> Spans:
        found: Spans = {}
        bad: list[Record] = []
        async with Reader(
            self._client,
            self._topic,
            start=start,
            stop=stop,
            isolation_level="read_committed",
            on_data_loss="earliest",
            prefetch=PREFETCH,
        ) as reader:
            while records := await self._next(reader):
                judged = [(one, parse_verdict(one.value or b"")) for one in records]
                named = as_spans(verdict for _, verdict in judged if verdict is not None)
                found = plus(found, common(wanted, named))
                wrong = [one for one, verdict in judged if verdict is None]
                self.bad += len(wrong)
                bad = bad or wrong[:1]
        for one in bad:
            LOG.warning(
                "topic %s has values that are no verdicts, %d so far: expected %s, got %r in "
                "partition %d at offset %d",
                *(self._topic, self.bad, FORM, (one.value or b"")[:100], one.partition, one.offset),
            )
        return found

    async def _next(self, reader: Reader) -> list[Record]:
        try:
            async with asyncio.timeout(self._patience):
                return await reader.read_many()
        except TimeoutError:
            raise NoProgress(
                f"share.verdicts: nothing came for {self._patience:g} s from topic {self._topic}; "
                "see that its leader is up and that no transaction on it is left open, or raise "
                "kafkaConsumer.pollTimeoutMs"
            ) from None
