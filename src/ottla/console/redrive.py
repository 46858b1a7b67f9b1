"""Sends dead letters again, each exactly once.

Rules:

- A plan names its letters. Each batch of them is one transaction: the records, and an entry for
  each letter in `ottla.redrive` that names the plan. Either both are there or neither is.
- The transactional id belongs to the topic of letters, so a second redrive of it fences the first.
  What became of letters is read after that: no other redrive can add to it any more.
- A letter that this plan has sent before is passed over; so a plan that was interrupted can be run
  again and repeats nothing. One that another plan has sent or dismissed is passed over unless
  forced.
- A letter without a copy of its record is taken from its origin, if that still has it.
- A letter that cannot be sent is refused by name; the others are sent.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.admin.topics import TopicCalls
from ottla.client.cluster.cluster import Client
from ottla.client.errors import KafkaError
from ottla.client.producer.producer import Producer
from ottla.client.producer.types import ProducerRecord
from ottla.console.browse import Browser
from ottla.console.letters import (
    COUNT,
    FROM,
    REDRIVE_TOPIC,
    Entries,
    Entry,
    Place,
    about,
    encode_entry,
    is_copy,
    own_headers,
)
from ottla.console.paging import READ_AT_ONCE
from ottla.console.query import BadPlace, Query
from ottla.errors import OttlaError
from ottla.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ottla.client.reader.types import Record
    from ottla.clock import Clock
    from ottla.console.clusters import ClusterSettings
    from ottla.console.letters import About, Letter, Origin

BATCH: Final = 100
"""Letters in one transaction: what is lost and repeated when it is interrupted."""
MOST: Final = 10_000
"""Letters of one plan."""
RATE: Final = 500
"""Letters a second: consumers of the topic have other work, too."""
MOST_RATE: Final = 100_000
MOST_TIMES: Final = 5
"""A record that was sent again so often needs force: it will most likely fail again."""
MOST_REFUSALS: Final = 1_000
TIMEOUT: Final = 30.0
"""Seconds for a request."""
_PLACE: Final = re.compile(r"([0-9]{1,9})@([0-9]{1,19})")


class BadPlan(OttlaError, ValueError):
    """A plan that makes no sense; the text says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with which letters."""

    group: str
    topic: str
    """The topic of the letters."""
    places: tuple[Place, ...]
    to: str = ""
    """Another topic than the one that each came from."""
    same_partition: bool = False
    """Into the partition that it came from; else by its key."""
    dismiss: bool = False
    """Send nothing; the letters count as dealt with."""
    force: bool = False
    rate: int = RATE
    id: str = field(default_factory=lambda: secrets.token_hex(8))


class Refusal(NamedTuple):
    """A letter that is not sent, and why."""

    letter: str
    reason: str


@dataclass(slots=True)
class Progress:
    """How far a redrive is."""

    total: int
    done: int = 0
    passed: int = 0
    """Dealt with before."""
    refused: list[Refusal] = field(default_factory=list)
    state: str = "running"
    """running, done, stopped or failed."""
    error: str = ""


def check(plan: Plan) -> None:
    """Raise `BadPlan` for what no run could do."""
    if not plan.places:
        raise BadPlan("Choose letters first.")
    if len(plan.places) > MOST:
        raise BadPlan(f"At most {MOST:,} letters at a time, not {len(plan.places):,}.")
    if not 1 <= plan.rate <= MOST_RATE:
        raise BadPlan(f"The rate is a number from 1 to {MOST_RATE:,} letters a second.")
    if plan.to in (plan.topic, REDRIVE_TOPIC):
        raise BadPlan(f"Letters cannot be sent to {plan.to}.")


def why_not(plan: Plan, told: About, entry: Entry | None) -> str | None:
    """Why a letter is refused or passed over; None: it is to be sent or dismissed."""
    if entry is not None and entry.plan == plan.id:
        return PASSED
    if entry is not None and not plan.force:
        return PASSED
    if told.origin is None:
        return "it is no dead letter: it does not say where it came from"
    if plan.dismiss:
        return None
    if told.count >= MOST_TIMES and not plan.force:
        return f"its record was sent again {told.count} times already; force it if that is meant"
    return None


PASSED: Final = "dealt with before"


class Preview(NamedTuple):
    """What a plan would do, as far as the letters that are known tell."""

    by_target: dict[str, int]
    passed: int
    refused: list[Refusal]


def preview(
    plan: Plan, letters: Iterable[Letter], entries: Mapping[str, Entry], topics: Iterable[str]
) -> Preview:
    """Pure: what `run` will do unless something changes."""
    known = {one.place: one for one in letters}
    existing = set(topics)
    made = Preview({}, 0, [])
    passed = 0
    for place in plan.places:
        name = place.named(plan.topic)
        letter = known.get(place)
        if letter is None:
            made.refused.append(Refusal(name, GONE))
            continue
        reason = why_not(plan, letter.about, entries.get(name))
        if reason == PASSED:
            passed += 1
            continue
        target = "" if plan.dismiss else plan.to or _origin_topic(letter.about)
        if reason is None and target and target not in existing:
            reason = no_topic(target)
        if reason is not None:
            made.refused.append(Refusal(name, reason))
            continue
        made.by_target[target] = made.by_target.get(target, 0) + 1
    return made._replace(passed=passed)


GONE: Final = "the letter is gone"


def no_topic(topic: str) -> str:
    return f"topic {topic} does not exist any more; choose another topic"


def _origin_topic(told: About) -> str:
    return "" if told.origin is None else told.origin.topic


def to_json(plan: Plan) -> dict[str, Any]:
    """For a signed form: letters as ranges."""
    return {
        "group": plan.group,
        "topic": plan.topic,
        "ranges": [list(one) for one in ranges(plan.places)],
        "to": plan.to,
        "same_partition": plan.same_partition,
        "dismiss": plan.dismiss,
        "force": plan.force,
        "rate": plan.rate,
        "id": plan.id,
    }


def from_json(found: Mapping[str, Any]) -> Plan:
    places = (
        Place(partition, offset)
        for partition, first, last in found["ranges"]
        for offset in range(first, last + 1)
    )
    kept = {key: value for key, value in found.items() if key != "ranges"}
    return Plan(places=tuple(places), **kept)


def ranges(places: Iterable[Place]) -> list[tuple[int, int, int]]:
    """Partition, first and last offset of letters that follow each other."""
    found: list[tuple[int, int, int]] = []
    for place in sorted(set(places)):
        if found and found[-1][0] == place.partition and found[-1][2] + 1 == place.offset:
            found[-1] = (place.partition, found[-1][1], place.offset)
        else:
            found.append((place.partition, place.offset, place.offset))
    return found


def parse_place(text: str) -> Place:
    """`0@17`."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise BadPlan(f"A letter is partition@offset such as 0@17, not {text!r:.60}.")
    return Place(int(found[1]), int(found[2]))


async def run(cluster: ClusterSettings, plan: Plan, progress: Progress, clock: Clock) -> None:
    """Carry the plan out. Raises what the cluster refuses; whatever was committed stays."""
    check(plan)
    client = Client(
        cluster.bootstrap,
        client_id="ottla-redrive",
        security=cluster.security,
        api_timeout=TIMEOUT,
    )
    producer = Producer(
        cluster.bootstrap,
        client_id="ottla-redrive",
        security=cluster.security,
        transactional_id=f"ottla-console-redrive-{plan.topic}",
        max_block_ms=TIMEOUT * 1000,
        delivery_timeout_ms=TIMEOUT * 1000,
    )
    try:
        await _make_topic(client)
        await producer.connect()
        run_of = _Run(plan, progress, clock, Browser(client, clock), producer)
        await run_of.all()
    finally:
        await producer.close(TIMEOUT)
        await client.close()


async def _make_topic(client: Client) -> None:
    """The topic of entries, unless it is there."""
    if REDRIVE_TOPIC in (await client.refresh([REDRIVE_TOPIC])).topics:
        return
    try:
        await TopicCalls(client).create_topic(
            REDRIVE_TOPIC, 1, configs={"cleanup.policy": "compact"}
        )
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


class _Run:
    """A plan while it is carried out; the producer has fenced all others."""

    def __init__(
        self, plan: Plan, progress: Progress, clock: Clock, browser: Browser, producer: Producer
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._clock = clock
        self._browser = browser
        self._producer = producer
        self._entries = Entries(plan.topic)
        self._partitions: dict[str, int] = {}

    async def all(self) -> None:
        plan = self._plan
        await self._entries.refresh(self._browser)
        began = self._clock.monotonic()
        places = sorted(set(plan.places))
        for batch in _batches(places):
            sent = await self._batch(batch)
            self._progress.done += sent
            wait = began + self._progress.done / plan.rate - self._clock.monotonic()
            if sent and wait > 0:
                await asyncio.sleep(wait)

    async def _batch(self, places: Sequence[Place]) -> int:
        plan = self._plan
        records = await self._read(places)
        outgoing: dict[str, list[ProducerRecord]] = {}
        entries: list[ProducerRecord] = []
        for place in places:
            name = place.named(plan.topic)
            record = records.get(place)
            if record is None:
                self._refuse(name, GONE)
                continue
            told = about(record.headers)
            before = self._entries.by_name.get(name)
            reason = why_not(plan, told, before)
            if reason == PASSED:
                self._progress.passed += 1
                continue
            target = "" if plan.dismiss else plan.to or _origin_topic(told)
            if reason is None and target:
                made = await self._outgoing(record, told, name, target)
                if isinstance(made, str):
                    reason = made
                else:
                    outgoing.setdefault(target, []).append(made)
            if reason is not None:
                self._refuse(name, reason)
                continue
            times = 1 if before is None else before.times + 1
            entry = Entry(plan.id, self._clock.wall_ms(), target, times)
            entries.append(ProducerRecord(encode_entry(entry), key=name.encode()))
        if entries:
            async with self._producer.transaction():
                for target, some in outgoing.items():
                    await self._producer.send_many(target, some)
                await self._producer.send_many(REDRIVE_TOPIC, entries)
        return len(entries)

    async def _outgoing(
        self, record: Record, told: About, name: str, target: str
    ) -> ProducerRecord | str:
        """The record to send, or why there is none."""
        if target not in self._partitions:
            self._partitions[target] = await self._browser.partitions(target)
        origin, partitions = told.origin, self._partitions[target]
        assert origin is not None  # `why_not` has refused it
        if not partitions:
            return no_topic(target)
        partition = origin.partition if self._plan.same_partition else None
        if partition is not None and partition >= partitions:
            return f"topic {target} has no partition {partition}; send it by its key"
        if not is_copy(record):
            found = await self._from_origin(origin)
            if isinstance(found, str):
                return found
            record = found
        headers = (
            *own_headers(record),
            (FROM, name.encode()),
            (COUNT, str(told.count + 1).encode()),
        )
        return ProducerRecord(record.value, record.key, headers, partition=partition)

    async def _from_origin(self, origin: Origin) -> Record | str:
        gone = f"it has no copy of its record, and {origin} is gone"
        if not await self._browser.has_topic(origin.topic):
            return gone
        try:
            [bounds] = (
                await self._browser.bounds(Query(origin.topic, partitions=[origin.partition]))
            ).values()
        except BadPlace:
            return gone
        if not bounds.start <= origin.offset < bounds.end:
            return gone
        found = await self._records(origin.topic, origin.partition, origin.offset, origin.offset)
        return found[0] if found else gone

    async def _read(self, places: Sequence[Place]) -> dict[Place, Record]:
        """The letters that are still there."""
        bounds = await self._browser.bounds(Query(self._plan.topic))
        wanted = set(places)
        found = {}
        for partition, low, high in ranges(places):
            known = bounds.get(partition)
            if known is None or high < known.start or low >= known.end:
                continue
            first, last = max(low, known.start), min(high, known.end - 1)
            for one in await self._records(self._plan.topic, partition, first, last):
                place = Place(one.partition, one.offset)
                if place in wanted:
                    found[place] = one
        return found

    async def _records(self, topic: str, partition: int, first: int, last: int) -> list[Record]:
        found: list[Record] = []
        starts, stops = {partition: first}, {partition: last + 1}
        async with self._browser.reader(topic, "read_committed", starts, stops) as reader:
            while records := await reader.read_many(READ_AT_ONCE):
                found += records
        return found

    def _refuse(self, name: str, reason: str) -> None:
        if len(self._progress.refused) < MOST_REFUSALS:
            self._progress.refused.append(Refusal(name, reason))


def _batches(places: Sequence[Place]) -> Iterator[Sequence[Place]]:
    for start in range(0, len(places), BATCH):
        yield places[start : start + BATCH]
