"""File rows of `benchmarks.streams`: our File backend against the SeaStreamer crate's own.

The peer is `streams_peer/`, a program of a few lines over the published crate, built once into a
cache directory where cargo is present. Both write and read the same number of 256-byte messages
through their public API, each in a process of its own that reports its seconds and CPU seconds; a
file is deleted after its round.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks._harness import ROUNDS, Row, Timing, faster, skipped

PATIENCE: Final = 60.0  # seconds; a round takes a few

PEER: Final = Path(__file__).parent / "streams_peer"
CACHE_VARIABLE: Final = "BENCH_STREAMS_CACHE"
SIZE: Final = 256
AT_LEAST: Final = {"write": 0.8, "read": 0.8}


class Spent(NamedTuple):
    seconds: float
    cpu: float


def rows(messages: int, rounds: int = ROUNDS) -> list[Row]:
    """The rows, or none and a line that says what is missing."""
    peer = build_peer()
    if peer is None:
        skipped("File write and read", "cargo is not there to build the SeaStreamer crate")
        return []
    found: dict[str, tuple[list[Spent], list[Spent]]] = {"write": ([], []), "read": ([], [])}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        for turn in range(rounds + 1):
            for side, program in enumerate(([sys.executable, "-m", __name__], [str(peer)])):
                file = Path(directory) / f"{turn}-{side}.ss"
                for name, size in (("write", [str(SIZE)]), ("read", [])):
                    if name in failed:
                        continue
                    try:
                        spent = _run([*program, name, str(file), str(messages), *size])
                    except subprocess.SubprocessError as error:
                        failed[name] = str(error)
                        if name == "write":
                            failed["read"] = "there is no file to read"
                        continue
                    if turn:  # the first one fills caches
                        found[name][side].append(spent)
                file.unlink(missing_ok=True)
    for name, why in failed.items():
        skipped(f"File {name}", why)
    return [_row(name, *found[name], messages) for name in found if name not in failed]


def _row(name: str, ours: list[Spent], peer: list[Spent], messages: int) -> Row:
    def show(spent: list[Spent]) -> str:
        per_second = messages / statistics.median(s.seconds for s in spent)
        cpu = statistics.median(s.cpu for s in spent) / messages
        return f"{per_second / 1e3:.0f} k/s, {cpu * 1e6:.1f} us CPU each"

    mine, theirs = (Timing(tuple(s.seconds for s in spent)) for spent in (ours, peer))
    shown = {id(mine): show(ours), id(theirs): show(peer)}
    return faster(
        f"File {name}, {SIZE} bytes", mine, theirs, AT_LEAST[name], lambda timing: shown[id(timing)]
    )


def build_peer() -> Path | None:
    """The peer's program, built on first use; None without cargo."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return None
    cache = Path(
        os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "ottla" / "streams-peer"
    )
    program = cache / "release" / "streams_peer"
    sources = [PEER / "Cargo.toml", PEER / "src" / "main.rs"]
    if not program.exists() or any(s.stat().st_mtime > program.stat().st_mtime for s in sources):
        print("  building the SeaStreamer crate, which takes a minute or two", flush=True)
        work = cache / "source"
        shutil.copytree(PEER, work, dirs_exist_ok=True)
        subprocess.run(
            [cargo, "build", "--release", "--quiet", "--target-dir", str(cache)],
            cwd=work,
            check=True,
        )
        program.touch()
    return program


def _run(command: list[str]) -> Spent:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    seconds, cpu = done.stdout.split()
    return Spent(float(seconds), float(cpu))


async def _write(path: str, messages: int, size: int) -> None:
    from ottla.streams import ConnectOptions, Create, FileOptions, connect

    options = ConnectOptions(file=FileOptions(create=Create.IF_MISSING))
    payload = b"x" * size
    async with connect(f"file://{path}", options) as streamer, streamer.producer("bench") as p:
        for number in range(messages):
            await p.send(payload)
            if number % 10_000 == 9_999:
                await p.flush()


async def _read(path: str, messages: int) -> None:
    from ottla.streams import ConsumerOptions, Reset, connect

    options = ConsumerOptions(reset=Reset.EARLIEST)
    total = 0
    async with (
        connect(f"file://{path}") as streamer,
        streamer.consumer("bench", options=options) as consumer,
    ):
        async for message in consumer:
            total += len(message.payload)
            messages -= 1
            if not messages:
                break
    assert total


def main(words: list[str]) -> None:
    """Our side of a round. The compiled loops are loaded before the clock starts."""
    from ottla.streams.ss.crc import KERNEL_FROM, crc16_each
    from ottla.streams.ss.frames import Framer

    crc16_each([bytes(KERNEL_FROM)])
    Framer().run(b"", 0, 1, 0, [bytes(KERNEL_FROM)], 0)
    start, cpu = time.perf_counter(), time.process_time()
    if words[0] == "write":
        asyncio.run(_write(words[1], int(words[2]), int(words[3])))
    else:
        asyncio.run(_read(words[1], int(words[2])))
    print(time.perf_counter() - start, time.process_time() - cpu)


if __name__ == "__main__":
    main(sys.argv[1:])
