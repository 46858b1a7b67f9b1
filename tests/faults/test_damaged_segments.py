"""A segment that is cut or flipped at any byte, found at the next start or at the first read.

Such a partition answers KAFKA_STORAGE_ERROR, or is repaired as after a crash: what comes before the
damage is served byte for byte, and no batch with a valid CRC is other than it was sent. Bytes that
went bad under a batch's CRC reach the client as they are, as in Kafka; it sees that by the CRC. The
broker starts, and the other partitions are served and written in any case.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.testing.embedded import EmbeddedBroker
from ottla.wire.batch import iter_batches
from ottla.wire.error_codes import ErrorCode
from ottla.wire.errors import BatchError, WireError
from tests.support.raw_client import RawClient, batch, now_ms
from tests.support.sizes import SOAK, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

SEGMENTS: Final = 3
BATCHES: Final = 4  # in each
FROM_MAGIC: Final = 16
TOPICS: Final = ("struck", "spared")
STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Written(NamedTuple):
    """What was acknowledged of one topic, by offset, and the two directories that hold it."""

    sent: dict[str, dict[int, bytes]]
    stopped: Path
    killed: Path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    home = tmp_path_factory.mktemp("damaged")
    sent: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
    with EmbeddedBroker(home / "stopped") as broker, RawClient(broker.bootstrap) as client:
        for topic in TOPICS:
            broker.create_topic(topic, configs={"segment.ms": "1000"})
        begin = now_ms() - 2000 * SEGMENTS
        for segment in range(SEGMENTS):
            for number in range(BATCHES):
                for topic in TOPICS:
                    values = [b"%s %d.%d " % (topic.encode(), segment, number) * 5, b"second"]
                    data = batch(*values, timestamp=begin + 2000 * segment + number)
                    told = client.produce(topic, data)
                    assert told.error_code == 0
                    sent[topic][told.base_offset] = bytes(data[FROM_MAGIC:])
        shutil.copytree(home / "stopped", home / "killed")
    assert len(list((home / "stopped" / "struck-0").glob("*.log"))) == SEGMENTS
    return Written(sent, home / "stopped", home / "killed")


def damage(path: Path, position: int, bit: int | None) -> None:
    """Cut the file at a byte, or flip one bit of it."""
    with path.open("r+b") as file:
        if bit is None:
            file.truncate(position)
            return
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


@contextmanager
def damaged_copy(written: Written, *, was_killed: bool) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "data")
        shutil.copytree(written.killed if was_killed else written.stopped, path)
        yield path


def struck_offset(path: Path, position: int) -> int:
    """The base offset of the batch that holds a byte of a sound segment."""
    at = 0
    for one in iter_batches(memoryview(path.read_bytes())):
        at += one.size
        if position < at:
            return one.base_offset
    raise AssertionError(position)


def first_batch(client: RawClient, topic: str, offset: int) -> tuple[int, bytes] | int | None:
    """(base offset, payload) of what a fetch gives first, its error code, None if it is damaged."""
    data = client.fetch_one(topic, offset)
    if data.error_code:
        return data.error_code
    if not data.records:
        return int(ErrorCode.OFFSET_OUT_OF_RANGE)  # the log ends here now
    assert isinstance(data.records, (bytes, memoryview))
    try:
        one = next(iter_batches(memoryview(data.records)))
        one.verify_crc()
    except (BatchError, WireError):
        return None
    return one.base_offset, bytes(one.data[FROM_MAGIC:])


def check_struck(
    client: RawClient, sent: dict[int, bytes], struck: int, was_struck: bytes, *, is_walked: bool
) -> None:
    for offset, payload in sent.items():
        found = first_batch(client, "struck", offset)
        if found == STORAGE_ERROR:
            return  # offline, as a whole
        if offset < struck:
            assert found == (offset, payload), f"{offset} is before the damage at {struck}"
        elif isinstance(found, int):
            assert found == ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode(found)  # cut off
        elif found is None:
            assert not is_walked, "a start after a kill looks at every batch"
        else:
            at, content = found
            assert content in {*sent.values(), was_struck}, "a valid CRC over what nobody sent"
            # Offset, length and leader epoch precede what the CRC covers.
            assert sent.get(at) == content or struck in (at, offset) or content == was_struck


def check_spared(client: RawClient, sent: dict[int, bytes]) -> None:
    for offset, payload in sent.items():
        assert first_batch(client, "spared", offset) == (offset, payload)


def write(client: RawClient, topic: str, sent: dict[int, bytes]) -> int:
    """The error code; what is acknowledged can be read."""
    data = batch(b"after the damage")
    told = client.produce(topic, data)
    if told.error_code == 0:
        found = first_batch(client, topic, told.base_offset)
        assert found == (told.base_offset, bytes(data[FROM_MAGIC:]))
        for offset in [offset for offset in sent if offset >= told.base_offset]:
            del sent[offset]  # cut off
        sent[told.base_offset] = bytes(data[FROM_MAGIC:])
    return told.error_code


@settings(max_examples=2_000 if SOAK else examples(40))
@given(
    segment=st.integers(0, SEGMENTS - 1),
    place=st.floats(0, 1, exclude_max=True),
    bit=st.one_of(st.none(), st.integers(0, 7)),
    was_killed=st.booleans(),
)
def test_damage_anywhere_stays_where_it_is(
    written: Written, segment: int, place: float, bit: int | None, *, was_killed: bool
) -> None:
    with damaged_copy(written, was_killed=was_killed) as path:
        file = sorted((path / "struck-0").glob("*.log"))[segment]
        position = int(place * file.stat().st_size)
        struck = struck_offset(file, position)
        damage(file, position, bit)
        was_struck = written.sent["struck"][struck]
        sent, spared = (dict(written.sent[topic]) for topic in TOPICS)
        for _ in range(2):  # what was repaired, or written after it, is there after a restart
            with EmbeddedBroker(path) as broker, RawClient(broker.bootstrap) as client:
                check_spared(client, spared)
                check_struck(client, sent, struck, was_struck, is_walked=was_killed)
                assert write(client, "struck", sent) in (0, STORAGE_ERROR)
                assert write(client, "spared", spared) == 0
                check_spared(client, spared)
