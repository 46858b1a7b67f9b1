"""The `.ss` codec: the published vectors, a genuine file, and every file we can think of."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.streams.errors import ChecksumError, FileLimitExceeded, FormatError
from ottla.streams.ss.crc import KERNEL_FROM, crc16, crc16_each
from ottla.streams.ss.decoder import Decoder
from ottla.streams.ss.encoder import Encoder, Entry
from ottla.streams.ss.format import (
    HEADER_SIZE,
    Beacon,
    Header,
    Marker,
    decode_beacon,
    decode_header,
    max_markers,
)
from ottla.streams.types import INTERNAL
from tests.support.stream_files import decode, entries

T = 1_700_000_000_000
SAMPLE = Path(__file__).parents[2] / "data" / "sea_streamer_sample.ss"


def encode(entries: list[Entry], interval: int = 1024, *, eos: int | None = None) -> bytes:
    encoder = Encoder(interval, HEADER_SIZE)
    encoder.beacon_if_due()
    for entry in entries:
        encoder.add(entry)
    if eos is not None:
        encoder.eos(eos)
    return Header("v.ss", T, interval).encode() + encoder.take()


def v6() -> list[Entry]:
    return [Entry(b"hello", 1, i, T + i, b"hello-%d" % i) for i in range(50)]


def shown(beacons: list[tuple[int, Beacon]]) -> list[tuple[int, int, bytes, int, int]]:
    return [
        (offset, beacon.remaining, marker.key, marker.seq, marker.running)
        for offset, beacon in beacons
        for marker in beacon.markers
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xFFFF),
        (b"hi", 0xD73B),
        (b"EOS", 0xED7C),
        (b"123456789", 0x4C06),
        (b"hello, world", 0x8028),
        (b"123456789abcd", 0xA106),
    ],
)
def test_t44_v1_checksums(data: bytes, expected: int) -> None:
    assert crc16(data) == expected


@given(st.binary(max_size=80), st.integers(0, 80))
def test_t44_checksum_over_any_split(data: bytes, split: int) -> None:
    assert crc16(data[split:], crc16(data[:split])) == crc16(data)


def test_t44_v2_header() -> None:
    encoded = Header("a.ss", T, 1024).encode()
    head = bytes.fromhex("53 73 01 04 61 2e 73 73 00 00 01 8b cf e5 68 00 00 00 04 00")
    assert encoded == head + bytes(107) + b"\r"
    assert decode_header(encoded) == Header("a.ss", T, 1024)


def test_d32_a_long_name_is_cut_at_a_character() -> None:
    decoded = decode_header(Header("é" * 60, T, 1024).encode())
    assert decoded == Header("é" * 55, T, 1024)


def test_t44_v3_v4_v5_frames() -> None:
    moment = bytes.fromhex("00 00 01 8b cf e5 68 00")
    encoder = Encoder(1 << 20, HEADER_SIZE)
    encoder.add(Entry(b"hello", 1, 2, T + 1, b"hi"))
    assert encoder.take() == b"\x05hello" + bytes(7) + b"\1" + bytes(7) + b"\2" + bytes.fromhex(
        "00 00 01 8b cf e5 68 01 00 00 00 02 68 69 d7 3b 0d"
    )
    encoder.eos(T)
    eos = encoder.take()
    assert len(eos) == 56
    assert eos == b"\x15" + INTERNAL.encode() + bytes(16) + moment + bytes.fromhex(
        "00 00 00 03 45 4f 53 ed 7c 0d"
    )
    encoder.add(Entry(b"a", 0, 0, T, b""))
    smallest = bytes(encoder.take())
    assert len(smallest) == 33
    assert smallest.endswith(bytes.fromhex("00 00 00 00 ff ff 0d"))


def test_t44_v8_beacon() -> None:
    encoded = bytes.fromhex(
        "0d 00000027 01 05 68656c6c6f 0000000000000001 0000000000000014 0000018bcfe56814 0b47 0d"
    )
    beacon = Beacon(39, (Marker(b"hello", 1, 20, T + 20, 0x0B47),))
    assert beacon.encode() == encoded
    assert decode_beacon(encoded, 0, 0) == (beacon, len(encoded))
    for size in range(len(encoded)):
        assert decode_beacon(encoded[:size], 0, 0) is None


def test_t45_v6_v7_fifty_messages() -> None:
    data = encode(v6())
    assert len(data) == 2446
    assert hashlib.sha256(data).hexdigest() == (
        "ef4b28fa8f29fd23c680f87abb737bb80e5d69ae4035bc0b688d446d8f11b135"
    )
    found, beacons = decode(data)
    assert entries(found) == v6()
    assert shown(beacons) == [(1024, 39, b"hello", 20, 0x0B47), (2048, 44, b"hello", 42, 0xF128)]
    ended = encode(v6(), eos=T + 50)
    assert len(ended) == 2502
    assert hashlib.sha256(ended).hexdigest() == (
        "a76cd14e49aa44927b83c77ee95fcedd5ac3915e04203efedf04c8f32ea04236"
    )


def test_t45_v9_a_frame_across_beacons() -> None:
    data = encode([Entry(b"big", 0, 1, T, b"x" * 3000), Entry(b"big", 0, 2, T + 1, b"y")])
    assert len(data) == 3310
    assert hashlib.sha256(data).hexdigest() == (
        "6dffa2c8b57e8e54d711322cd33fadc64fa1a6763e82d528b0c4496c3341429f"
    )
    _, beacons = decode(data)
    assert [(b.remaining, b.markers[0].running) for _, b in beacons] == [
        (2139, 0x68F0),
        (1152, 0x68F0),
        (165, 0x68F0),
    ]


def test_t45_v10_a_frame_that_ends_at_a_beacon() -> None:
    data = encode([Entry(b"a", 0, 1, T, b"z" * 863)])
    assert len(data) == 1059
    _, beacons = decode(data)
    assert shown(beacons) == [(1024, 0, b"a", 1, 0xEA83)]


def test_t45_v11_t51_markers_take_turns() -> None:
    data = encode(
        [Entry((b"cat", b"dog")[i % 2], 0, i // 2 + 1, T + i, bytes([i])) for i in range(60)]
    )
    assert len(data) == 2362
    _, beacons = decode(data)
    assert shown(beacons) == [(1024, 4, b"cat", 13, 0xCF58), (2048, 25, b"dog", 26, 0xD6A3)]


def test_t51_no_beacon_exceeds_half_of_its_interval() -> None:
    assert [max_markers(b) for b in (1024, 2048, 4096, 65536, 1 << 20)] == [1, 3, 7, 116, 127]
    assert max_markers(570) == 0
    names = [b"k%02d" % i + b"x" * 246 for i in range(20)]
    data = encode([Entry(names[i % 20], 0, i // 20, T, b"") for i in range(200)], 2048)
    _, beacons = decode(data)
    assert all(len(beacon.encode()) <= 1024 for _, beacon in beacons)
    seen = {marker.key for _, beacon in beacons[-8:] for marker in beacon.markers}
    assert seen == set(names)


def test_v12_a_file_of_the_original_is_encoded_again_byte_for_byte() -> None:
    data = SAMPLE.read_bytes()
    header = decode_header(data)
    found, beacons = decode(data)
    assert len(found) == 61
    assert found[-1].stream == INTERNAL
    assert {m.stream for m in found[:-1]} == {"cat", "dog"}
    assert len(beacons) == len(data) // header.interval
    encoder = Encoder(header.interval, HEADER_SIZE)
    for entry in entries(found):
        encoder.add(entry)
    assert header.encode() + encoder.take() == data


ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from([b"a", b"bb", b"longer-key"]),
        st.integers(0, 2),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**53),
        st.binary(max_size=40) | st.integers(0, 3000).map(lambda n: b"\r" * n),
    ),
    max_size=30,
)


@given(ENTRIES, st.sampled_from([128, 640, 1024, 4096]), st.integers(1, 5000))
def test_t46_decoding_is_the_inverse_and_every_beacon_aligns(
    given_entries: list[Entry], interval: int, chunk: int
) -> None:
    data = encode(given_entries, interval)
    found, beacons = decode(data, chunk)
    assert entries(found) == given_entries
    for offset, _ in beacons:
        decoder = Decoder(interval, offset, align=True)
        decoder.feed(data[offset:])
        suffix = decoder.take(1 << 30)
        assert suffix == found[len(found) - len(suffix) :]
        assert decoder.clean


@given(ENTRIES.filter(bool), st.sampled_from([128, 1024]))
def test_offsets_of_frames_are_where_a_decoder_can_begin(
    given_entries: list[Entry], interval: int
) -> None:
    data = encode(given_entries, interval)
    decoder = Decoder(interval)
    decoder.feed(data[HEADER_SIZE:])
    for index in range(len(given_entries)):
        again = Decoder(interval, decoder.offset)
        again.feed(data[decoder.offset :])
        assert entries(again.take(1000)) == given_entries[index:]
        decoder.take(1)


def test_t47_damage_is_named_with_its_offset() -> None:
    data = bytearray(encode(v6()))
    start = data.index(b"hello-7")
    data[start] ^= 1
    with pytest.raises(ChecksumError) as caught:
        decode(bytes(data))
    assert caught.value.offset == start - 34
    for at, text in ((0, "magic"), (2, "version"), (127, "damaged")):
        broken = bytearray(encode([]))
        broken[at] ^= 0xFF
        with pytest.raises(FormatError, match=text):
            decode_header(bytes(broken))
    broken = bytearray(encode(v6()))
    broken[1024] = 0
    with pytest.raises(FormatError, match="a beacon is missing") as wrong:
        decode(bytes(broken))
    assert wrong.value.offset == 1024


@pytest.mark.parametrize("limit", [128, 160, 161, 1023, 1024, 1058, 1059, 2000])
def test_t54_a_frame_that_does_not_fit_changes_nothing(limit: int) -> None:
    encoder = Encoder(1024, HEADER_SIZE, limit=limit)
    kept = []
    for entry in [Entry(b"a", 0, 1, T, b"z" * n) for n in (0, 863, 5, 900, 3000, 1)]:
        before = encoder.offset
        try:
            encoder.add(entry)
        except FileLimitExceeded:
            assert encoder.offset == before
        else:
            kept.append(entry)
    data = Header("v.ss", T, 1024).encode() + encoder.take()
    assert len(data) == encoder.offset <= max(limit, HEADER_SIZE)
    assert entries(decode(data)[0]) == kept


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("inside", [-1, 0, 1, 2])
def test_t47_both_loops_find_the_first_damaged_frame(
    inside: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last byte of a payload, either byte of its checksum, the end of its frame."""
    payloads = [b"%03d" % number * 7 for number in range(20)]
    encoder = Encoder(1 << 20, HEADER_SIZE)
    for seq, payload in enumerate(payloads, 1):
        encoder.add(Entry(b"cat", 0, seq, T, payload))
    data = bytearray(encoder.take())
    data[data.index(payloads[12]) + len(payloads[12]) + inside] ^= 0x40
    if compiled:
        crc16_each([bytes(KERNEL_FROM)])  # loads it
    else:
        monkeypatch.setattr("ottla.streams.ss.decoder.kernel", lambda _size: None)
    decoder = Decoder(1 << 20)
    decoder.feed(bytes(data))
    assert [message.payload for message in decoder.take(100)] == payloads[:12]
    with pytest.raises(FormatError if inside == 2 else ChecksumError):
        decoder.take(100)


@given(
    st.lists(st.lists(st.binary(max_size=700), min_size=1, max_size=12), min_size=1, max_size=6),
    st.sampled_from((1024, 2048, 1 << 20)),
    st.booleans(),
)
def test_t46_runs_of_messages_are_written_as_one_by_one(
    runs: list[list[bytes]], interval: int, compiled: bool
) -> None:
    one_by_one, at_once = Encoder(interval, HEADER_SIZE), Encoder(interval, HEADER_SIZE)
    written, seq = b"", 1
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr("ottla.streams.ss.frames.kernel", lambda _size: None)
        else:
            crc16_each([bytes(KERNEL_FROM)])  # loads it
        for number, payloads in enumerate(runs):
            key, shard = (b"cat", b"dog")[number % 2], number % 3
            for turn, payload in enumerate(payloads):
                one_by_one.add(Entry(key, shard, seq + turn, T + number, payload))
            assert at_once.add_run(Entry(key, shard, seq, T + number, b""), payloads)
            written += at_once.take()
            seq += len(payloads)
    assert written == one_by_one.take()
    assert at_once.offset == one_by_one.offset == HEADER_SIZE + len(written)


@pytest.mark.parametrize("limit", [200, 1024, 1100, 3000])
def test_t54_near_the_limit_a_run_is_left_to_single_messages(limit: int) -> None:
    encoder = Encoder(1024, HEADER_SIZE, limit=limit)
    assert not encoder.add_run(Entry(b"a", 0, 1, T, b""), [bytes(500), bytes(500)])
    assert (encoder.offset, encoder.take()) == (HEADER_SIZE, b"")
