"""Copying one stream to another: at least once, in order, resumable with an offset store.

A batch is acknowledged when the other side has given a receipt for each of its messages. A message
that the output refuses ends the relay: those before it are acknowledged, nothing after it is
written. SIGINT and SIGTERM end the relay after the batch that is underway, with its positions
committed.

Between two stores of one kind a message is copied exactly: payload or null, key, headers in their
order and with their nulls, time. If the output cannot keep something, that is reported before the
first message is copied (`losses`), and with `strict` nothing is copied. Shards and sequences are
the output's own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.streams.base import Operation
from ottla.streams.errors import ConfigError, DeliveryError, StreamEnded, StreamError
from ottla.streams.streamer import connect
from ottla.streams.types import (
    BEGINNING,
    END,
    AutoCommit,
    Backend,
    ConnectOptions,
    ConsumerOptions,
    Create,
    FileOptions,
    Mode,
    Outgoing,
    ProducerOptions,
    Reset,
    ShardKey,
    StdioOptions,
)
from ottla.streams.url import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.client.security import Security
    from ottla.offsets import OffsetStore
    from ottla.streams.consumer import Consumer
    from ottla.streams.producer import Producer
    from ottla.streams.streamer import Streamer
    from ottla.streams.types import Message

BATCH = 1000
NS_PER_MS = 1_000_000
WAIT = 0.2
"""Seconds a batch waits for its first message: how long a signal may go unnoticed."""

_log = logging.getLogger("ottla.streams")

CREATING = FileOptions(create=Create.IF_MISSING)
TIMEOUT = 60.0
"""Seconds to wait for a store, as `ConnectOptions` has it."""


class Lossy(ConfigError):
    """The output of a strict relay cannot keep all that the input may hold."""


@dataclass
class Tally:
    """The number of relayed messages and the rate."""

    total: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Messages a second, over all."""
        return self.total / max(self.seconds, 1e-9)


async def relay_streams(
    input_url: str,
    output_url: str,
    *,
    from_start: bool = True,
    until_end: bool = False,
    offsets: OffsetStore | None = None,
    name: str = "ottla-relay",
    strict: bool = False,
    new_timestamps: bool = False,
    plain: bool = False,
    timeout: float = TIMEOUT,  # noqa: ASYNC109 - that of each connection
    security: Security | None = None,
    tally: Tally | None = None,
    show: Callable[[Tally], None] | None = None,
    warn: Callable[[str], None] = _log.warning,
) -> None:
    """Copy until the input ends (or is read up to its end now), or a signal comes.

    If the output cannot keep all that the input may contain, `strict` raises `Lossy`; otherwise
    `warn` is called. With `new_timestamps` messages get the time of their arrival, which is not a
    loss. With `plain` lines of stdin and stdout are payloads as they are, without headers; else
    a line of stdin that names another stream is left out, and `strict` makes it an error.
    """
    tally = tally or Tally()
    stdio = StdioOptions(headers=not plain, on_bad_line="raise" if strict else "raw")
    if input_url == output_url and not input_url.startswith("stdio:"):
        raise ConfigError("input and output are the same stream; name another --output")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with (
            connect(
                input_url,
                ConnectOptions(
                    timeout=timeout, file=FileOptions(follow=not until_end), stdio=stdio
                ),
                security=_security_of(input_url, security),
            ) as source,
        ):
            target = connect(
                output_url,
                ConnectOptions(timeout=timeout, file=CREATING, stdio=stdio),
                security=_security_of(output_url, security),
            )
            if strict:  # before the output is opened, which may make a file
                _refuse(lossy(source, target, new_timestamps=new_timestamps))
            # The input comes first: if it cannot be read, no output file is made.
            async with (
                source.consumer(options=_options(source, offsets, name, from_start)) as consumer,
                target,
            ):
                lost = await losses(source, target, new_timestamps=new_timestamps)
                if strict:
                    _refuse(lost)
                for loss in lost:
                    warn(f"the output does not keep {loss}")
                keep = _Keep.of(source, target, new_timestamps=new_timestamps)
                async with target.producer(
                    options=ProducerOptions(stop_at_failure=True)
                ) as producer:
                    copy = _Copy(consumer, producer, keep, None if strict else warn)
                    await copy.run(tally, stop, until_end=until_end, show=show)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _security_of(url: str, security: Security | None) -> Security | None:
    """What is given for all kafka URLs, unless the URL names a file of its own."""
    parsed = parse(url)
    return security if parsed.scheme == "kafka" and "config" not in dict(parsed.query) else None


_CARRIED = (Operation.MESSAGE_KEYS, Operation.HEADERS, Operation.NULLS)


def _refuse(lost: list[str]) -> None:
    if lost:
        raise Lossy(f"the output cannot keep {'; nor '.join(lost)}; nothing was copied")


def lossy(source: Streamer, target: Streamer, *, new_timestamps: bool) -> list[str]:
    """What messages of one kind of store may hold and the other cannot keep, with the reason."""
    may_hold, cannot = source.driver.unsupported, target.driver.unsupported
    lost = [
        f"{what.value}: {cannot[what]}"
        for what in (*_CARRIED, Operation.BINARY)
        if what not in may_hold and what in cannot
    ]
    if not new_timestamps and not _keeps_time(source, target):
        lost.append("timestamps: Redis refuses a time before that of its last entry")
    return lost


async def losses(source: Streamer, target: Streamer, *, new_timestamps: bool) -> list[str]:
    """Losses between these streams."""
    lost = lossy(source, target, new_timestamps=new_timestamps)
    if new_timestamps:
        return lost
    reads = source.url.keys or ()
    writes = (target.url.keys or ()) if len(target.url.keys or ()) == 1 else reads
    stamped, stamping = (
        await source.driver.stamped_by_store(reads),
        await target.driver.stamped_by_store(writes),
    )
    if stamping:
        lost.append(f"timestamps: {', '.join(sorted(stamping))} has LogAppendTime")
    elif stamped and target.backend is Backend.KAFKA:
        lost.append(
            f"the timestamp type of {', '.join(sorted(stamped))}: a broker alone can write "
            "LogAppendTime, so messages have CreateTime and their time"
        )
    return lost


def _keeps_time(source: Streamer, target: Streamer) -> bool:
    """Ids of Redis only grow, and only those of another Redis stream are sure to."""
    return target.backend is not Backend.REDIS or source.backend is Backend.REDIS


class _Keep(NamedTuple):
    """The parts of a message to copy."""

    keys: bool
    headers: bool
    nulls: bool
    times: bool
    time_zero: bool

    @classmethod
    def of(cls, source: Streamer, target: Streamer, *, new_timestamps: bool) -> _Keep:
        keys, headers, nulls = (what not in target.driver.unsupported for what in _CARRIED)
        times = not new_timestamps and _keeps_time(source, target)
        return cls(keys, headers, nulls, times, target.backend is not Backend.KAFKA)


def _options(
    source: Streamer, offsets: OffsetStore | None, name: str, from_start: bool
) -> ConsumerOptions:
    unsupported = source.driver.unsupported
    reset = Reset.EARLIEST if from_start and Operation.EARLIEST not in unsupported else Reset.LATEST
    if offsets is None:
        return ConsumerOptions(reset=reset)
    return ConsumerOptions(
        mode=Mode.RESUMABLE,
        group=name,
        reset=reset,
        start_position=BEGINNING if from_start else END,
        auto_commit=AutoCommit.DISABLED,
        offsets=offsets,
    )


class _Copy:
    """From a consumer to a producer. Without `warn` a time that is not kept ends it."""

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        keep: _Keep,
        warn: Callable[[str], None] | None,
    ):
        self._consumer = consumer
        self._producer = producer
        self._keep = keep
        self._warn = warn
        self._told_of_time = False

    async def run(
        self,
        tally: Tally,
        stop: asyncio.Event,
        *,
        until_end: bool,
        show: Callable[[Tally], None] | None,
    ) -> None:
        consumer = self._consumer
        # Messages that arrive from now on do not keep the relay from its end.
        left = await consumer.source.ends_now() if until_end else None
        at_end = left == {}
        while not stop.is_set():
            try:
                messages = await consumer.batch(BATCH, WAIT)
            except StreamEnded:
                return
            if messages:
                at_end = False
                await self._deliver(messages, tally)
                if left is not None and _reached(left, messages):
                    return
            elif at_end:
                return
            elif until_end:
                # One more batch delivers what the client has read and not handed out yet.
                at_end = await self._caught_up()
            if show is not None:
                show(tally)

    async def _deliver(self, messages: Sequence[Message], tally: Tally) -> None:
        """All of them, or those before the first one that is refused, which ends the relay."""
        posted = [await self._producer.post(self._outgoing(message)) for message in messages]
        refused: StreamError | None = None
        for message, delivery in zip(messages, posted, strict=True):
            try:
                await delivery
            except StreamError as error:
                # Those after it were held back; their errors say no more than this one.
                refused = refused or _refused(message, error)
                continue
            if refused is None:
                tally.total += 1
                if self._consumer.options.offsets is not None:
                    self._consumer.ack(message)
        if self._consumer.options.offsets is not None:
            await self._consumer.commit()
        if refused is not None:
            raise refused

    def _outgoing(self, message: Message) -> Outgoing:
        keep = self._keep
        headers = message.headers if keep.headers else ()
        if not keep.nulls:
            headers = tuple((name, value or b"") for name, value in headers)
        return Outgoing(
            self._producer.stream or message.stream,
            message.payload,
            None,
            message.key if keep.keys else None,
            headers,
            self._time(message),
            message.is_null and keep.nulls,
        )

    def _time(self, message: Message) -> int | None:
        if not self._keep.times:
            return None
        # librdkafka takes the time 0 for "now"; its sink refuses it.
        if not self._keep.time_zero and 0 <= message.timestamp_ns < NS_PER_MS and self._warn:
            if not self._told_of_time:
                self._told_of_time = True
                self._warn(
                    f"the output does not keep the time 0 of {_place(message)}: librdkafka writes "
                    "the time of the copy instead (reported only once)"
                )
            return None
        return message.timestamp_ns

    async def _caught_up(self) -> bool:
        """After a pause without messages: whether this is the end (a pipe reports its own)."""
        if self._consumer.backend is Backend.STDIO:
            return False
        # From what was read, not from acknowledged positions: behind the last message of a
        # transaction is its marker, which no position ever passes. None is not the end: something
        # is left, and the store does not know how much.
        return all(behind == 0 for behind in (await self._consumer.source.lag({})).values())


def _reached(left: dict[ShardKey, int], messages: Sequence[Message]) -> bool:
    """Take the shards out that have come to their end; whether all have."""
    for message in messages:
        shard = ShardKey(message.stream, message.shard)
        if message.seq + 1 >= left.get(shard, math.inf):
            del left[shard]
    return not left


def _refused(message: Message, error: StreamError) -> DeliveryError:
    return DeliveryError(f"{_place(message)} was refused, and nothing after it is copied: {error}")


def _place(message: Message) -> str:
    return f"{message.stream}/{message.shard} at {message.seq}"


async def tick(
    output_url: str,
    interval: float,
    count: int | None,
    timeout: float = TIMEOUT,  # noqa: ASYNC109 - that of the connection
    security: Security | None = None,
) -> None:
    """Send `tick-N` every interval."""
    options = ConnectOptions(timeout=timeout, file=CREATING)
    of_output = _security_of(output_url, security)
    async with (
        connect(output_url, options, security=of_output) as streamer,
        streamer.producer() as producer,
    ):
        number = 0
        while count is None or number < count:
            await (await producer.send(f"tick-{number}"))
            number += 1
            if number != count:
                await asyncio.sleep(interval)
