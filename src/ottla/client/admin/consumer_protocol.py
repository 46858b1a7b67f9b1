"""The assignment that classic consumers put, opaque to brokers, into their group's state.

Its layout: int16 version, then an array of (topic, array of int32 partitions), then user data.
Later versions only append, so whatever follows the partitions is left alone.
"""

from __future__ import annotations

import struct

from ottla.client.cluster.view import TopicPartition

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_assignment(data: bytes | memoryview) -> list[TopicPartition]:
    """The partitions of a member; none if the bytes are not a consumer's assignment."""
    if not data:
        return []
    view = memoryview(data)
    try:
        (topics,) = _INT32.unpack_from(view, _INT16.size)
        position = _INT16.size + _INT32.size
        found: list[TopicPartition] = []
        for _ in range(topics):
            (length,) = _INT16.unpack_from(view, position)
            if length < 0:
                return []  # going backwards would let a few bytes claim endless topics
            position += _INT16.size
            topic = str(view[position : position + length], "utf-8")
            position += length
            (count,) = _INT32.unpack_from(view, position)
            position += _INT32.size
            # One unpack for all: a count that lies needs no memory before it fails.
            partitions = struct.unpack_from(f">{count}i", view, position)
            position += count * _INT32.size
            found += [TopicPartition(topic, partition) for partition in partitions]
    except (struct.error, UnicodeDecodeError):
        return []
    return found
