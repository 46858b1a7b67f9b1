"""Streams in a file that several processes use: T52 and T53 of the specification."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ottla.streams.errors import (
    FileBusy,
)
from ottla.streams.ss import inotify
from tests.support.stream_files import LINUX, open_file, poll_never, replay, write

if TYPE_CHECKING:
    from pathlib import Path


FROM_AFAR = (
    "import asyncio, sys\n"
    "from ottla.streams import connect\n"
    "async def main():\n"
    "    async with connect('file://' + sys.argv[1]) as s, s.producer('a') as p:\n"
    "        await (await p.send('from afar'))\n"
    "asyncio.run(main())\n"
)


@pytest.mark.parametrize("watched", [False, pytest.param(True, marks=LINUX)])
async def test_t52_lines_of_another_process_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    """With the watcher disabled by polling, and with polling disabled by the watcher."""
    if watched:
        poll_never(monkeypatch)
    path = tmp_path / "x.ss"
    await write(path, ["first"])
    async with open_file(path, watch=watched) as streamer, streamer.consumer("a") as consumer:
        arriving = asyncio.create_task(consumer.next(120))
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", FROM_AFAR, str(path))
        assert (await arriving).payload == b"from afar"
        assert await process.wait() == 0


async def test_t52_who_is_told_nothing_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system without inotify, or one that allows no more of it."""
    monkeypatch.setattr(inotify, "MASK", 0)
    path = tmp_path / "x.ss"
    await write(path, ["first"])
    assert inotify.watched(str(path)) is None
    async with open_file(path) as streamer, streamer.consumer("a") as consumer:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", FROM_AFAR, str(path))
        assert (await consumer.next(120)).payload == b"from afar"
        assert await process.wait() == 0


async def test_t53_d13_two_producers_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "x.ss"
    async with open_file(path, end_with_eos=True) as streamer, streamer.producer("a") as first:
        async with open_file(path) as other, other.producer("a") as second:
            for i in range(50):
                await first.send(f"f{i}")
                await second.send(f"s{i}")
            busy = await asyncio.to_thread(
                subprocess.run,
                [
                    sys.executable,
                    "-c",
                    (
                        "import sys\n"
                        "from ottla.streams.ss.writer import SsWriter\n"
                        "from ottla.streams.types import FileOptions\n"
                        "SsWriter(sys.argv[1], FileOptions())\n"
                    ),
                    str(path),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert FileBusy.__name__ in busy.stderr
        await (await first.send("last"))
    found = await replay(path)
    assert [m.seq for m in found] == list(range(1, 102))
    assert path.read_bytes().count(b"EOS") == 1
