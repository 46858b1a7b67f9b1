"""Batches of the producer and their outcomes.

A batch is sealed with the producer's fields when it first leaves; see `accumulator` for the rules.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from crc32c import crc32c

from ottla.client.errors import ClientError
from ottla.wire.batch import CRC_START, TRANSACTIONAL

if TYPE_CHECKING:
    from ottla.client.cluster.view import TopicPartition
    from ottla.wire.builder import BatchBuilder
    from ottla.wire.writers import Part

Token = TypeVar("Token")

_CRC = struct.Struct(">I")
_SEAL = struct.Struct(">qhi")
_SEAL_AT: Final = 43
_LOW_ATTRIBUTES_AT: Final = 22


class Identity(NamedTuple):
    """What InitProducerId gave; sequences count under it, partition by partition."""

    producer_id: int
    epoch: int


class Delivered(NamedTuple):
    """The result of a written batch; offset and time may be -1."""

    base_offset: int
    log_append_time_ms: int


Outcome: TypeAlias = Delivered | ClientError


@dataclass(slots=True, eq=False)
class Batch(Generic[Token]):
    """Records of one partition that are written together or not at all.

    `tokens` identify the callers that wait for the outcome; the machine only carries them.
    """

    partition: TopicPartition
    created: float
    deadline: float
    count: int
    reserved: int
    data: Part = b""
    builder: BatchBuilder | None = None
    """Takes records while there is one."""
    tokens: list[Token] = field(default_factory=list)
    attempts: int = 0
    not_before: float = -math.inf
    identity: Identity | None = None
    base_sequence: int = -1
    in_flight: bool = False
    given_up: bool = False

    def close(self) -> None:
        """Take no more records; be bytes from now on."""
        if self.builder is not None:
            self.data = self.builder.build()
            self.builder = None

    def seal(self, identity: Identity, base_sequence: int, *, transactional: bool) -> None:
        """Write the producer's fields into the header, and recompute the CRC."""
        self.identity = identity
        self.base_sequence = base_sequence
        view = memoryview(self.data)
        if transactional:
            view[_LOW_ATTRIBUTES_AT] |= TRANSACTIONAL
        _SEAL.pack_into(view, _SEAL_AT, *identity, base_sequence)
        _CRC.pack_into(view, CRC_START - _CRC.size, crc32c(view[CRC_START:]))


class Settled(NamedTuple, Generic[Token]):
    """Outcomes for waiting callers."""

    tokens: list[Token]
    outcome: Outcome
