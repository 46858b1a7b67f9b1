"""The file format against the original program, which make soak fetches and builds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks._streams_file import build_peer
from ottla.streams.ss.encoder import Encoder
from ottla.streams.ss.format import (
    HEADER_SIZE,
    decode_header,
)
from ottla.streams.ss.writer import SsWriter, runs
from ottla.streams.types import INTERNAL, Create, FileOptions, Outgoing
from tests.support.stream_files import decode, entries

CRATE = "registry/src/*/sea-streamer-file-1.0.0-rc.2"


ORIGINALS = {
    "tests/sample-1.ss": (3481, 28, INTERNAL, []),
    "sea-streamer-file-reader/testcases/consumer.ss": (
        4830,
        101,
        INTERNAL,
        [(39, 0x0B47), (44, 0xF128), (4, 0x59EA), (9, 0xF53D)],
    ),
    "sea-streamer-file-reader/testcases/quicksort.ss": (8978, 42, "quicksort", []),
}
"""Bytes, frames, the last one's stream; of each beacon the remaining bytes and the checksum."""


@pytest.mark.soak("reads the crate that the next test fetches and builds")
@pytest.mark.parametrize("name", ORIGINALS)
def test_v12_the_samples_of_the_original_are_encoded_again_byte_for_byte(name: str) -> None:
    """They come with the published crate and are read where cargo has unpacked it."""
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    path = next(cargo.glob(f"{CRATE}/{name}"), None)
    if path is None:
        pytest.skip("the SeaStreamer crate is not here: make soak fetches it to build it")
    data = path.read_bytes()
    header = decode_header(data)
    found, beacons = decode(data)
    running = [(beacon.remaining, beacon.markers[0].running) for _, beacon in beacons]
    assert (len(data), len(found), found[-1].stream, running) == ORIGINALS[name]
    encoder = Encoder(header.interval, HEADER_SIZE)
    for entry in entries(found):
        encoder.add(entry)
    assert header.encode() + encoder.take() == data


@pytest.mark.soak("building the original takes minutes")
@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_v12_the_original_as_built_here_reads_alike_and_goes_on_alike(tmp_path: Path) -> None:
    peer = build_peer()
    assert peer is not None
    path = tmp_path / "sample.ss"
    subprocess.run([str(peer), "sample", str(path)], check=True, capture_output=True)
    data = path.read_bytes()
    found, _ = decode(data)
    encoder = Encoder(1024, HEADER_SIZE)
    for entry in entries(found):
        encoder.add(entry)
    assert decode_header(data).encode() + encoder.take() == data
    ours = tmp_path / "ours.ss"
    writer = SsWriter(str(ours), FileOptions(create=Create.IF_MISSING))
    writer.append(runs([Outgoing("bench", b"x" * 256)] * 5000))
    writer.close()
    subprocess.run([str(peer), "read", str(ours), "5000"], check=True, capture_output=True)
    subprocess.run([str(peer), "write", str(ours), "5000", "256"], check=True, capture_output=True)
    again, _ = decode(ours.read_bytes())
    assert [m.seq for m in again] == list(range(1, 10_001))
