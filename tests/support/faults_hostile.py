"""What a hostile, broken or confused client sends: an endless seeded stream of it.

- `request`: a well-formed request of any served API and version, with values that are mostly at
  the edges of what fits in a field or point at something that exists. The broker has to answer.
- `mutated`: such a request with bytes flipped, cut out, put in or repeated, its length right,
  wrong or absurd. The broker may answer or close.
- `garbage`: bytes that never were a request.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

from ottla.broker.serving.apis import SERVED
from ottla.wire.builder import BatchBuilder
from ottla.wire.compression import Codec
from ottla.wire.messages import message, request_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.wire.spec import Field, Message

TOPICS: Final = ("orders", "events", "compacted", "gone", "a.b", "__consumer_offsets")
WORDS: Final = (
    *TOPICS,
    *("", ".", "..", "a_b", "../../etc/passwd", "x" * 250, "é" * 100, "\0", "0", "-1"),
    *("group", "group-2", "member", "consumer", "range", "roundrobin", "uniform", "[a-z]+", "(("),
    *("cleanup.policy", "compact", "delete", "retention.ms", "max.message.bytes", "segment.bytes"),
    *("log.retention.ms", "consumer.session.timeout.ms", "message.timestamp.type"),
    *("LogAppendTime", "1000", "9" * 30),
)
BITS: Final = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}
PRODUCE: Final = 0
MAX_WAIT_MS: Final = 3  # of most long polls: what is parked holds up what is behind it
LENGTH = struct.Struct(">i")


class Request(NamedTuple):
    """A framed request and what is needed to read its answer."""

    data: bytes
    api_key: int
    version: int
    correlation_id: int
    answered: bool  # Produce with acks=0 is not, and when it fails the connection closes


class Hostile:
    """All that one seed makes. `topic_ids` are of topics that exist."""

    def __init__(self, seed: int, topic_ids: Sequence[bytes] = ()) -> None:
        self.random = random.Random(seed)
        self._served = [
            (key, version)
            for key, served in SERVED.items()
            for version in range(served.min_version, served.max_version + 1)
        ]
        self._topic_ids = [bytes(16), self.random.randbytes(16), *topic_ids]
        self._batches = _batches()
        self._correlation_id = 0

    def request(self) -> Request:
        api_key, version = self.random.choice(self._served)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        spec = message(api_key, request=True)
        body = self._struct(spec, spec.root, version)
        client_id = self.random.choice((None, "", "hostile", "é" * 50))
        parts = request_parts(api_key, version, self._correlation_id, client_id, body)
        answered = api_key != PRODUCE or body.acks != 0
        return Request(b"".join(parts), api_key, version, self._correlation_id, answered)

    def mutated(self) -> bytes:
        data = bytearray(self.request().data)
        for _ in range(self.random.choice((1, 1, 1, 2, 8))):
            self._mutate(data)
        kind = self.random.random()
        if kind < 0.9:  # the length is right, the broker looks inside
            LENGTH.pack_into(data, 0, len(data) - 4)
        elif kind < 0.95:
            LENGTH.pack_into(data, 0, self._integer(32, signed=True))
        else:
            del data[self.random.randrange(1, len(data)) :]
        return bytes(data)

    def garbage(self) -> bytes:
        data = self.random.randbytes(self.random.choice((1, 3, 4, 5, 12, 60, 2000)))
        match self.random.randrange(4):
            case 0:
                return LENGTH.pack(len(data)) + data
            case 1:
                return LENGTH.pack(self.random.choice((-1, 0, 3, 2**31 - 1, 2**20, 12))) + data
            case 2:
                return b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"
        return data

    def _mutate(self, data: bytearray) -> None:
        at = self.random.randrange(4, len(data))
        match self.random.randrange(6):
            case 0:
                data[at] ^= 1 << self.random.randrange(8)
            case 1:
                data[at] = self.random.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del data[at : at + self.random.choice((1, 2, 4, 40))]
                data.extend(bytes(max(0, 12 - len(data))))
            case 3:
                data[at:at] = self.random.randbytes(self.random.choice((1, 2, 4, 40)))
            case 4:
                data[at:at] = data[at : at + 20]
            case 5:
                data[at : at + 4] = LENGTH.pack(self._integer(32, signed=True))

    def _struct(self, spec: Message, cls: type[Any], version: int) -> Any:
        return cls(
            **{
                field.name: self._field(spec, field, version)
                for field in spec.structs[cls]
                if field.in_version(version)
            }
        )

    def _field(self, spec: Message, field: Field, version: int) -> Any:
        # A tagged field says null by its absence, and absent is its default.
        nullable = field.nullable_in(version) and not field.tagged_in(version)
        if nullable and self.random.random() < 0.2:
            return None
        if field.name == "max_wait_ms" and self.random.random() < 0.98:
            return self.random.randint(0, MAX_WAIT_MS)
        if not field.array:
            return self._value(spec, field.type, version)
        count = self.random.choice((0, 1, 1, 2, 3))
        values = [self._value(spec, field.type, version) for _ in range(count)]
        if values and self.random.random() < 0.1:
            values += values
        return tuple(values)

    def _value(self, spec: Message, kind: str | type[Any], version: int) -> Any:
        if not isinstance(kind, str):
            return self._struct(spec, kind, version)
        match kind:
            case "bool":
                return self.random.random() < 0.5
            case "float64":
                return self.random.random()
            case "string":
                return self.random.choice(WORDS)
            case "uuid":
                return self.random.choice(self._topic_ids)
            case "bytes":
                return self.random.randbytes(self.random.choice((0, 1, 2, 30)))
            case "records":
                return self.random.choice(self._batches)
        return self._integer(BITS[kind], signed=kind != "uint16")

    def _integer(self, bits: int, *, signed: bool) -> int:
        chosen = self.random.random()
        if chosen < 0.8:
            return self.random.choice((0, 0, 0, 1, 1, 2, 3, 10, 100 if bits > 7 else 1))
        if chosen < 0.9 and signed:
            return self.random.choice((-1, -1, -1, -2, -3))
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        return self.random.choice((low, high, self.random.randint(low, high)))


def _batches() -> list[bytes]:
    """Record batches: right ones, and one for each way to be wrong."""
    builder = BatchBuilder()
    for index in range(3):
        builder.append(b"value %d" % index, key=b"key", timestamp=1_700_000_000_000)
    good = bytes(builder.build())
    idempotent = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    idempotent.append(b"once", key=b"key", timestamp=1_700_000_000_000)
    once = bytes(idempotent.build())
    bombs = []
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        bomb = BatchBuilder(codec=codec)
        bomb.append(bytes(900_000), key=b"bomb", timestamp=1_700_000_000_000)
        bombs.append(bytes(bomb.build()))
    wrong = [
        good[:30],
        good[:-5],
        good + good,
        good + b"!",
        good[:8] + LENGTH.pack(48) + good[12:],
        good[:8] + LENGTH.pack(-1) + good[12:],
        good[:8] + LENGTH.pack(2**31 - 1) + good[12:],
        good[:16] + b"\1" + good[17:],
        good[:17] + b"\0\0\0\0" + good[21:],
        good[:57] + LENGTH.pack(99) + good[61:],
        struct.pack(">q", 5) + good[8:],
        b"",
        bytes(61),
        bytes(200),
    ]
    # Records that are wrong under a right CRC.
    inside = [_with_crc(good[:61] + rest) for rest in _wrong_records(good[61:])]
    inside += [_with_crc(bomb[:-9] + bytes(9)) for bomb in bombs]
    return [good] * 6 + [once] * 4 + bombs + wrong + inside


def _wrong_records(sound: bytes) -> list[bytes]:
    return [
        bytes(range(256)),
        b"\xff" * 40,
        sound[:-1],
        sound + b"\0",
        sound[:1] + b"\x80" + sound[2:],
        sound.replace(b"\x06key", b"\x7fkey", 1),
        sound.replace(b"\x06key", b"\xff\xff\xff\xff", 1),
    ]


def _with_crc(data: bytes) -> bytes:
    """A batch of these bytes whose length and CRC are right."""
    sized = bytearray(data[:8] + LENGTH.pack(len(data) - 12) + data[12:])
    sized[17:21] = struct.pack(">I", crc32c(bytes(sized[21:])))
    return bytes(sized)
