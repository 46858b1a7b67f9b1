"""A member of a share group for one driver: it acquires ranges and acknowledges them, without
records.

Rules:

- A session has one request at a time, of any kind: the caller makes one call at a time, and a fetch
  waits no longer than `MAX_WAIT`.
- Fetches only acquire. Brokers that do not support this send the records along; they are dropped.
- A broken session is opened again by a fetch that asks for no records. The member's locks may be
  lost with it; the next acknowledgement shows that.
- A partition's acknowledgements are applied all together or not at all. If they are refused, they
  are halved a few times, so that most of them succeed; a range is not split. The rest counts as
  refused, which is safe: the records are delivered again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.cluster.cluster import together
from ottla.client.cluster.retry import RETRY, forgets
from ottla.client.cluster.view import NO_LEADER, TopicPartition
from ottla.client.errors import ClientError, KafkaError, check, kafka_error
from ottla.client.share.acks import STILL_HELD
from ottla.client.share.leaders import MOVED, OLDEST_WITH_MODES
from ottla.client.share.member import Member
from ottla.client.share.membership import Membership
from ottla.client.share.session import SESSION_ERRORS, Limits, ShareSession, ack_codes
from ottla.client.share.types import Kind
from ottla.randomness import RANDOM
from ottla.spark.share.ranges import Span, Spans, plus, size
from ottla.wire.error_codes import ErrorCode
from ottla.wire.schema.share_fetch import AcknowledgementBatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.client.cluster.cluster import Client
    from ottla.client.share.delivery import Key
    from ottla.wire.schema.share_acknowledge import ShareAcknowledgeResponse
    from ottla.wire.schema.share_fetch import ShareFetchResponse

MAX_WAIT: Final = 0.25
ASSIGNED_WITHIN: Final = 5.0  # seconds; later assignments are noticed when they come
UNROUTED_WAIT: Final = 0.02  # seconds between two looks at the assignment
MAX_HALVINGS: Final = 16  # requests that a partition may cost beyond the first
FETCH_BYTES: Final = 0x7FFF_FFFF  # no records are sent; the broker has its own limit
NOTHING: Final = Limits(0, 0, 0)


class _Acks(NamedTuple):
    kind: Kind
    is_uncounted: bool = False


class ShareQueue:
    """A member of the group, from `open` to `close`."""

    def __init__(self, client: Client, group: str, member_id: str, topics: Sequence[str]) -> None:
        self.lock_timeout = 0.0
        """Duration of locks in seconds, as last reported by a broker."""
        self.breaks = 0
        """How often a session has ended, and with it perhaps the locks."""
        self._client = client
        self._group = group
        self._topics = topics
        self._member_id = member_id
        self._member = Member(client, Membership(group, member_id, topics))
        self._routed = asyncio.Event()
        self._sessions: dict[int, ShareSession] = {}
        self._now = asyncio.get_running_loop().time

    async def open(self) -> None:
        """Join the group and wait for the assignment, which may be empty."""
        self._member.news = self._routed.set
        try:
            await self._member.join()
        except BaseException:
            await self._member.stop()
            raise
        self._member_id = self._member.membership.member_id
        with suppress(TimeoutError):
            async with asyncio.timeout(ASSIGNED_WITHIN):
                while not self._member.routes:
                    self._routed.clear()
                    await self._routed.wait()
                    self._member.check()

    # -- acquiring --------------------------------------------------------------------------------

    async def acquire(self, most: int, within: float) -> Spans:
        """Acquire about `most` records, as soon as there are some."""
        deadline = self._now() + within
        while True:
            self._member.check()
            left = deadline - self._now()
            found = await self._fetch(most, min(MAX_WAIT, max(0.0, left)))
            if found or left <= 0:
                return found

    async def _fetch(self, most: int, wait: float) -> Spans:
        routes = self._member.routes
        if not routes:
            await asyncio.sleep(min(wait, UNROUTED_WAIT))
            return {}
        share = -(-most // len(routes))
        limits = Limits(share, FETCH_BYTES)
        answers = await together(
            self._fetch_from(node, wanted, limits, wait) for node, wanted in routes.items()
        )
        found: Spans = {}
        for spans in answers:
            found = plus(found, spans)
        return found

    async def _fetch_from(
        self, node: int, wanted: Mapping[Key, TopicPartition], limits: Limits, wait: float
    ) -> Spans:
        session = self._session(node)
        request = session.fetch(wanted.keys(), {}, limits, int(wait * 1000))
        try:
            answer: ShareFetchResponse = await self._ask(
                node, request._replace(is_acquire_only=True)
            )
        except ClientError as error:
            if forgets(error, 1, repeatable=True) is None and not _is_session_error(error):
                raise
            await asyncio.sleep(RETRY.delay(1, RANDOM.random()))
            self._member.look_again()
            return {}
        found: Spans = {}
        for topic in answer.responses:
            for one in topic.partitions:
                place = wanted.get((topic.topic_id, one.partition_index))
                if one.error_code in MOVED or place is None:
                    self._member.look_again()
                elif one.error_code:
                    raise kafka_error(one.error_code, f"acquire from {place}", one.error_message)
                elif one.acquired_records:
                    spans = [Span(*acquired) for acquired in one.acquired_records]
                    found = plus(found, {place: spans})
        return found

    # -- acknowledging ----------------------------------------------------------------------------

    async def accept(self, spans: Spans) -> Spans:
        """Accept records; returns those that are no longer held."""
        return await self._acknowledge(spans, _Acks(Kind.ACCEPT))

    async def reject(self, spans: Spans) -> Spans:
        """Reject records; returns those that are no longer held."""
        return await self._acknowledge(spans, _Acks(Kind.REJECT))

    async def renew(self, spans: Spans) -> Spans:
        """Renew locks; returns records that are no longer held."""
        return await self._acknowledge(spans, _Acks(Kind.RENEW))

    async def give_back(self, spans: Spans) -> Spans:
        """Release unprocessed records; returns those that are no longer held."""
        return await self._acknowledge(spans, _Acks(Kind.RELEASE, is_uncounted=True))

    async def _acknowledge(self, spans: Spans, acks: _Acks) -> Spans:
        if not size(spans):
            return {}
        refused: Spans = {}
        leaders: dict[int, dict[TopicPartition, Key]] = {}
        known = self._client.view.topics
        if not all(place.topic in known for place in spans):
            view = await self._client.retry(lambda: self._client.refresh(self._topics))
            known = view.topics
        for place in spans:
            topic = known.get(place.topic)
            leader = NO_LEADER if topic is None else topic.leader_of(place.partition)
            if topic is None or leader == NO_LEADER:
                refused[place] = spans[place]
            else:
                leaders.setdefault(leader, {})[place] = topic.id, place.partition
        for found in await together(
            self._acknowledge_at(node, {place: spans[place] for place in keys}, keys, acks)
            for node, keys in leaders.items()
        ):
            refused |= found
        return refused

    async def _acknowledge_at(
        self, node: int, spans: Spans, keys: Mapping[TopicPartition, Key], acks: _Acks
    ) -> Spans:
        refused: Spans = {}
        left = {place: [some] for place, some in spans.items()}
        halvings = dict.fromkeys(spans, MAX_HALVINGS)
        while left:
            named = {keys[place]: chunks[-1] for place, chunks in left.items()}
            codes = await self._client.retry(partial(self._send, node, named, acks))
            for place in tuple(left):
                code = codes.get(keys[place], ErrorCode.INVALID_RECORD_STATE)
                some = left[place].pop()
                if code and len(some) > 1 and halvings[place] > 0:
                    halvings[place] -= 1
                    half = len(some) // 2
                    left[place] += [some[half:], some[:half]]
                elif code:
                    refused = plus(refused, {place: some})
                if not left[place]:
                    del left[place]
        return refused

    async def _send(
        self, node: int, named: Mapping[Key, Sequence[Span]], acks: _Acks
    ) -> dict[Key, int]:
        session = self._session(node)
        if not session.is_open:
            await self._ask(node, session.fetch(named.keys(), {}, NOTHING, 0))
        batches = {
            key: [AcknowledgementBatch(one.first, one.last, [acks.kind]) for one in some]
            for key, some in named.items()
        }
        renews = acks.kind is Kind.RENEW
        request = session.acknowledge(batches, renews=renews)._replace(
            is_uncounted=acks.is_uncounted
        )
        codes = ack_codes(await self._ask(node, request, needs_modes=renews))
        for code in STILL_HELD.intersection(codes.values()):
            # Not written, and still locked for us. Ranges that were written with it are refused the
            # next time and become ghosts, which are never delivered.
            check(code, f"acknowledge records of share group {self._group!r}")
        return codes

    async def _ask(self, node: int, request: object, *, needs_modes: bool = False) -> Any:
        """The response to a request; an error ends the session."""
        session = self._sessions[node]
        low = OLDEST_WITH_MODES if needs_modes else 0
        try:
            answer: ShareFetchResponse | ShareAcknowledgeResponse = await self._client.send(
                request, to=node, min_version=low
            )
            what = f"share group {self._group!r}"
            if answer.error_code in SESSION_ERRORS:
                # Like a broken connection: the next request opens a new session.
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, what, answer.error_message)
            check(answer.error_code, what, answer.error_message)
        except BaseException:
            self.breaks += session.is_open
            session.ended()
            raise
        session.answered()
        self.lock_timeout = answer.acquisition_lock_timeout_ms / 1000 or self.lock_timeout
        return answer

    def _session(self, node: int) -> ShareSession:
        if node not in self._sessions:
            self._sessions[node] = ShareSession(self._group, self._member_id)
        return self._sessions[node]

    # -- the end ----------------------------------------------------------------------------------

    async def let_go(self) -> None:
        """End the sessions, which releases all records of the member."""
        for node, session in self._sessions.items():
            if session.is_open:
                await self._ask(node, session.acknowledge({}, closes=True))
                session.ended()

    async def close(self) -> None:
        """Leave the group; held records stay locked as long as the broker allows."""
        await self._member.leave()


def _is_session_error(error: ClientError) -> bool:
    return isinstance(error, KafkaError) and error.code == ErrorCode.NETWORK_EXCEPTION
