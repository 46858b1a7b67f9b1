"""Auto stream reset: where a consumer starts that has no position"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.streams import (
    BEGINNING,
    ConsumerOptions,
    FileOptions,
    Mode,
    Reset,
    Unsupported,
)
from ottla.streams.errors import LatestButNotLive, NoStoredPosition
from tests.clauses.streams.places import EARLIEST, in_group, send, take

if TYPE_CHECKING:
    from tests.clauses.streams.places import Place


async def test_the_default_is_latest(stored: Place) -> None:
    """`AutoStreamReset` (Kafka's `AutoOffsetReset`) defaults to `Latest`."""
    assert ConsumerOptions().reset is Reset.LATEST
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "before")
        async with streamer.consumer(stored.stream) as consumer:
            await send(streamer, stored.stream, "after")
            assert await take(consumer, 1) == ["after"]


async def test_earliest_without_a_group(stored: Place) -> None:
    """`Earliest` begins with the first message if no group is assigned."""
    async with stored.connect() as streamer:
        await send(streamer, stored.stream, "a", "b")
        async with streamer.consumer(stored.stream, options=EARLIEST) as consumer:
            assert await take(consumer, 2) == ["a", "b"]


@pytest.mark.parametrize("mode", [Mode.RESUMABLE, Mode.LOAD_BALANCED])
async def test_earliest_in_a_group_without_state(served: Place, mode: Mode) -> None:
    """`Earliest` begins with the first message if the group has no prior state."""
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a")
        async with streamer.consumer(served.stream, options=in_group(mode)) as consumer:
            assert await take(consumer, 1) == ["a"]


async def test_a_group_with_state_goes_on_from_it(served: Place) -> None:
    """The option is for groups without state: one that has state goes on from there."""
    options = in_group(Mode.RESUMABLE)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a", "b")
        for reset, expected in ((Reset.EARLIEST, "a"), (Reset.LATEST, "b")):
            chosen = replace(options, reset=reset)
            async with streamer.consumer(served.stream, options=chosen) as consumer:
                assert await take(consumer, 1) == [expected]


async def test_latest_in_a_group_without_state(served: Place) -> None:
    """With `Latest` a new group begins with what comes after the consumer has opened."""
    options = replace(in_group(Mode.RESUMABLE), reset=Reset.LATEST)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "before")
        async with streamer.consumer(served.stream, options=options) as consumer:
            await send(streamer, served.stream, "after")
            assert await take(consumer, 1) == ["after"]


async def test_a_start_can_be_refused(served: Place) -> None:
    """A consumer without a position starts somewhere.

    Differs: with `reset=NONE` it does not; it is an error instead.
    """
    options = replace(in_group(Mode.RESUMABLE), reset=Reset.NONE)
    async with served.connect() as streamer:
        await send(streamer, served.stream, "a")
        with pytest.raises(NoStoredPosition):
            async with streamer.consumer(served.stream, options=options) as consumer:
                await consumer.next(10)


async def test_files_are_reset_at_the_start(file: Place) -> None:
    """On a file, `Earliest` begins at the start of the stream, and goes on with what is written."""
    async with file.connect() as streamer:
        await send(streamer, file.stream, "a")
        async with streamer.consumer(file.stream, options=EARLIEST) as consumer:
            assert await take(consumer, 1) == ["a"]
            await send(streamer, file.stream, "b")
            assert await take(consumer, 1) == ["b"]


async def test_the_end_of_a_file_that_is_not_followed_is_refused(file: Place) -> None:
    """`Latest` follows a file.

    Differs: without following it is an error, because nothing would ever come.
    """
    async with file.connect() as streamer:
        options = ConsumerOptions(file=FileOptions(follow=False))
        with pytest.raises(LatestButNotLive):
            streamer.consumer(file.stream, options=options)


def handles(name: str) -> int:
    """How many open files of this process have that name."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += link.readlink().name == name
        except OSError:
            continue  # closed meanwhile
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
async def test_consumers_of_a_file_share_a_handle(file: Place) -> None:
    """Consumers that stream from the same file share the file handle if they are all `Latest`.

    Differs: also if they are not.
    """
    async with file.connect() as streamer, AsyncExitStack() as stack:
        await send(streamer, file.stream, "a")
        consumers = [
            await stack.enter_async_context(streamer.consumer(file.stream, options=options))
            for options in (ConsumerOptions(), ConsumerOptions(), EARLIEST, EARLIEST)
        ]
        assert handles("streams.ss") == 1
        await send(streamer, file.stream, "b")
        for consumer in consumers[:2]:
            assert await take(consumer, 1) == ["b"]
        for consumer in consumers[2:]:
            assert await take(consumer, 2) == ["a", "b"]


async def test_a_consumer_of_a_file_that_moves_reads_for_itself(file: Place) -> None:
    """A `seek` or `rewind` opens a new file handle: other consumers stay where they are.

    Differs: the handle is shared, and each consumer has a place of its own in it.
    """
    async with (
        file.connect() as streamer,
        streamer.consumer(file.stream) as mover,
        streamer.consumer(file.stream) as other,
    ):
        await send(streamer, file.stream, "a", "b")
        assert await take(mover, 2) == ["a", "b"]
        await mover.rewind(BEGINNING)
        assert await take(mover, 2) == ["a", "b"]
        assert await take(other, 2) == ["a", "b"]


async def test_reset_is_not_implemented_by_pipes(stdio: Place) -> None:
    """Auto stream reset is not implemented by Stdio: a pipe cannot be replayed."""
    async with stdio.connect() as streamer:
        with pytest.raises(Unsupported, match="cannot be replayed"):
            streamer.consumer(stdio.stream, options=EARLIEST)
