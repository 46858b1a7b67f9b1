"""The I/O of a reader: sends planned fetches, decodes answers, fills the buffer.

One task runs from the reader's start to its end and owns all others. The caller only ever waits for
`changed`, so that cancelling the caller stops nothing and loses nothing. An unexpected error is
raised to the caller once, as a `ClientFault`; the reader can continue.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic

from ottla.client.cluster.cluster import NEWEST, Beside
from ottla.client.cluster.exchange import api_key_of
from ottla.client.errors import ClientError, ClientFault, ConnectionLost, kafka_error
from ottla.client.reader.fetching import Fetch, Fetched, K
from ottla.client.reader.rows import Chunk, decoder
from ottla.client.reader.types import CorruptRecords
from ottla.client.reader.wire import (
    NEWEST_FETCH_BY_NAME,
    OLDEST_COMMITTED_LOOKUP,
    fetch_answer,
    fetch_request,
    lookup_answer,
    lookup_request,
)
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import WireError
from ottla.wire.selection import next_offset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.cluster.cluster import Client
    from ottla.client.cluster.connection import Connection
    from ottla.client.cluster.view import TopicPartition
    from ottla.client.reader.buffer import Buffer
    from ottla.client.reader.fetching import Asked, Fetching, Lookup, Question
    from ottla.client.reader.rows import Decode
    from ottla.client.reader.types import Isolation
    from ottla.client.reader.wire import Answered
    from ottla.wire.schema.fetch import FetchRequest, FetchResponse

# Below this a hop to another thread and back takes longer than the work it spares the loop.
OFF_LOOP_BYTES: Final = 64 * 1024

logger = logging.getLogger(__name__)


class Pump(Generic[K]):
    """Fills `buffer` as `planner` says; `spoiled` says why the oldest chunk cannot be decoded."""

    def __init__(
        self,
        client: Client,
        planner: Fetching[K],
        buffer: Buffer[K],
        *,
        isolation: Isolation,
        max_wait: float,
        verify_crc: bool,
        columns: Sequence[str],
        decode: Decode | None = None,
    ) -> None:
        """`decode` makes rows of what was fetched; None: the best that is installed."""
        self.columns = columns
        self.spoiled: ClientError | None = None
        self._client = client
        self._planner = planner
        self._buffer = buffer
        self._isolation: Isolation = isolation
        self._max_wait = max_wait
        self._verify_crc = verify_crc
        self._fetching: dict[int, Connection] = {}
        self._decoder = decode
        self._todo = asyncio.Event()
        self._changed = asyncio.Event()
        self._now = asyncio.get_running_loop().time
        self._task = asyncio.create_task(self._run(), name="ottla reader")

    async def stop(self) -> None:
        """Stop all tasks; the buffer stays."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    def poke(self) -> None:
        """Look again at what there is to do."""
        self._todo.set()

    async def changed(self) -> None:
        """Wait for news of the planner or the buffer."""
        if self._task.done():
            # It ends early only because of a bug of ours: raise it at once.
            self._task.result()
        self._changed.clear()
        await self._changed.wait()

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                decoding: asyncio.Task[None] | None = None
                while True:
                    self._todo.clear()
                    if self._planner.wants_metadata(self._now()):
                        group.create_task(self._refresh())
                    for question in self._planner.plan(self._now(), self._buffer.nbytes):
                        group.create_task(self._ask(question))
                    if decoding is None or decoding.done():
                        chunk = self._buffer.next_chunk()
                        if chunk is not None and self.spoiled is None:
                            decoding = group.create_task(self._decode(chunk))
                    await self._until(self._planner.wake_at(self._now()))
        finally:
            self._changed.set()

    async def _until(self, when: float) -> None:
        """Wait for something to do, but not longer than until a time."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if when == math.inf else when):
                await self._todo.wait()

    def news(self) -> None:
        """Something has changed: wake the pump and all callers that wait for it."""
        self._todo.set()
        self._changed.set()

    async def _refresh(self) -> None:
        planner, began = self._planner, self._now()
        try:
            async with self._client.within_api_timeout("ask for metadata"):
                view = await self._client.refresh(planner.topics)
            for topic in planner.topics:
                if topic not in view.topics:
                    code = view.missing.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    raise kafka_error(code, f"find topic {topic!r}")
        except ClientError as error:
            planner.refresh_failed(error, self._now(), began)
        except Exception as error:
            logger.exception("the reader goes on after an error")
            planner.refresh_failed(ClientFault.of("look for topics", error), self._now())
        else:
            before = {key: track.version for key, track in planner.tracks.items()}
            planner.refreshed(view.topics, self._now())
            for key in before.keys() - planner.tracks.keys():
                self._buffer.forget(key)
            for key, track in planner.tracks.items():
                if track.version != before.get(key):
                    self._buffer.forget(key)
                    if track.offset is not None:
                        self._buffer.moved(key, track.offset)
        self.news()

    async def _ask(self, question: Question[K]) -> None:
        began = self._now()
        try:
            if isinstance(question, Fetch):
                await self._fetch(question)
            else:
                await self._look_up(question)
        except ClientError as error:
            self._planner.failed(question, error, self._now(), began)
        except Exception as error:
            logger.exception("the reader goes on after an error")
            self._planner.failed(question, ClientFault.of("fetch records", error), self._now())
        self.news()

    async def _look_up(self, question: Lookup[K]) -> None:
        planner = self._planner
        timeout_ms = int(self._client.request_timeout * 1000)
        async with self._client.within_api_timeout("look for offsets"):
            answer = await self._client.send(
                lookup_request(self._named(question.asked), self._isolation, timeout_ms),
                to=Beside(question.node) if question.node in self._fetching else question.node,
                min_version=OLDEST_COMMITTED_LOOKUP if self._isolation == "read_committed" else 1,
            )
        looked_up = {planner.key(name): one for name, one in lookup_answer(answer).items()}
        found = planner.looked_up(question, looked_up, self._now())
        for key, offset in found.items():
            self._buffer.moved(key, offset)

    async def _fetch(self, question: Fetch[K]) -> None:
        planner = self._planner
        named = self._named(question.asked)
        topics = {name.topic for name in named}
        ids = {one: topic_id for one in topics if (topic_id := planner.topic_id(one)) is not None}
        wait_ms = int(self._max_wait * 1000)
        request = fetch_request(named, ids, question.max_bytes, self._isolation, wait_ms)
        newest = NEWEST if len(ids) == len(topics) else NEWEST_FETCH_BY_NAME
        async with self._client.within_api_timeout("fetch records", self._max_wait):
            answer = await self._send_fetch(question.node, request, newest)
        if answer.throttle_time_ms > 0 and not answer.responses and not answer.error_code:
            # Over its quota: the answer is empty, and the next one is not asked for in this time.
            # A fetch that is held for longer than a request may take would count as a failure.
            await asyncio.sleep(answer.throttle_time_ms / 1000)
            planner.held(question)
            return
        found = {planner.key(name): one for name, one in fetch_answer(ids, answer).items()}
        size = sum(len(one.records) for one in found.values())
        outcome = (
            _outcome(found) if size < OFF_LOOP_BYTES else await asyncio.to_thread(_outcome, found)
        )
        for key in planner.fetched(question, outcome, self._now()):
            track = planner.tracks[key]
            topic, number = planner.name(key)
            start = question.asked[key].at
            records, aborted = found[key].records, found[key].aborted
            assert track.offset is not None
            # A batch may reach beyond the end, the reader does not.
            after = track.offset if track.end is None else min(track.offset, track.end)
            self._buffer.add(key, Chunk(topic, number, start, track.end, after, records, aborted))

    async def _send_fetch(self, node: int, request: FetchRequest, newest: int) -> FetchResponse:
        overtaken = self._fetching.get(node)
        if overtaken is not None and overtaken.in_flight == 1 and not overtaken.is_muted:
            # Only a void fetch waits there, and would hold up this one.
            overtaken.abort()
        connection = await self._client.connection_to(node)
        version = connection.pick_version(api_key_of(request), high=newest)
        within = self._client.request_timeout + self._max_wait
        self._fetching[node] = connection
        try:
            answer: FetchResponse = await connection.send(request, version, within)
            return answer
        finally:
            if self._fetching.get(node) is connection:
                del self._fetching[node]

    def _named(self, asked: Mapping[K, Asked]) -> dict[TopicPartition, Asked]:
        return {self._planner.name(key): one for key, one in asked.items()}

    async def _decode(self, chunk: Chunk) -> None:
        try:
            if self._decoder is None:
                self._decoder = await decoder()
            if len(chunk.records) < OFF_LOOP_BYTES:
                batches = self._decoder(chunk, self.columns, verify_crc=self._verify_crc)
            else:
                batches = await asyncio.to_thread(
                    self._decoder, chunk, self.columns, verify_crc=self._verify_crc
                )
        except CorruptRecords as error:
            self.spoiled = error
        except Exception as error:
            logger.exception("the reader goes on after an error")
            self.spoiled = ClientFault.of("decode records", error)
        else:
            self._buffer.replace(chunk, batches)
        self.news()


def _outcome(found: dict[K, Answered]) -> dict[K, Fetched]:
    """Where each partition goes on, from the headers of the batches that came."""
    try:
        return {
            key: Fetched(one.error_code, next_offset(one.records, partial_tail=True))
            for key, one in found.items()
        }
    except WireError as error:
        raise ConnectionLost(f"a fetch answer is broken: {error}") from error
