"""librdkafka by its C interface: a client that costs little, so that brokers are what is measured.

confluent-kafka makes a Python object of each record, which takes longer than either broker does.
Here the library that it brings is called for ten thousand records at a time; a compiled function
counts what arrives.
"""

from __future__ import annotations

import ctypes
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import numba
import numpy as np
from numba import carray  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from collections.abc import Mapping

AT_ONCE: Final = 10_000
KEYS: Final = 1_000
TICK_SECONDS: Final = 0.001
PRODUCER, CONSUMER = 0, 1  # rd_kafka_type_t
ANY_PARTITION: Final = -1
OK: Final = 0  # of rd_kafka_conf_set
TIMEOUT_MS: Final = 120_000
IDLE_SECONDS: Final = 20.0
ERROR_BYTES: Final = 512
POINTERS: Final = (
    *("conf_new", "new", "topic_new", "queue_new", "topic_partition_list_new"),
    *("topic_partition_list_add", "share_consumer_new"),
    *("share_poll", "share_commit_sync", "share_consumer_close"),
)
"""Functions that return one; ctypes would take it for an int of 32 bits."""


class _Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_length", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


ERR = _Message.err.offset // 4
LENGTH = _Message.length.offset // 8


@numba.cfunc("void(CPointer(int64), CPointer(int64))")
def _count(message: Any, counts: Any) -> None:
    """Add a message to the records, bytes and errors that have been seen."""
    words = carray(message, (LENGTH + 1,))
    found = carray(counts, (3,))
    if words[ERR] & 0xFFFFFFFF:
        found[2] += 1
    else:
        found[0] += 1
        found[1] += words[LENGTH]


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (file,) = folder.glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(file))
    for name in POINTERS:
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    library.rd_kafka_error_string.restype = ctypes.c_char_p
    library.rd_kafka_messages_count.restype = ctypes.c_size_t
    library.rd_kafka_messages_count.argtypes = (ctypes.c_void_p,)
    return library


LIBRARY: Final = _library()


def _settings(settings: Mapping[str, str]) -> ctypes.c_void_p:
    error = ctypes.create_string_buffer(ERROR_BYTES)
    conf = ctypes.c_void_p(LIBRARY.rd_kafka_conf_new())
    for name, value in settings.items():
        done = LIBRARY.rd_kafka_conf_set(
            conf, name.encode(), value.encode(), error, ctypes.c_size_t(ERROR_BYTES)
        )
        assert done == OK, error.value
    return conf


def _check(error: int | None) -> None:
    assert not error, LIBRARY.rd_kafka_error_string(ctypes.c_void_p(error))


class Client:
    """A handle of librdkafka's; `with` closes it."""

    def __init__(self, kind: int, settings: Mapping[str, str]) -> None:
        error = ctypes.create_string_buffer(ERROR_BYTES)
        conf = _settings(settings)
        made = LIBRARY.rd_kafka_new(kind, conf, error, ctypes.c_size_t(ERROR_BYTES))
        assert made, error.value
        self._handle = ctypes.c_void_p(made)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        LIBRARY.rd_kafka_destroy(self._handle)

    def produce(self, topic: str, value: bytes, records: int) -> float:
        """Seconds until all of them are acknowledged."""
        target = ctypes.c_void_p(LIBRARY.rd_kafka_topic_new(self._handle, topic.encode(), None))
        payload = ctypes.create_string_buffer(value, len(value))
        batch = (_Message * AT_ONCE)()
        for message in batch:
            message.payload = ctypes.addressof(payload)
            message.length = len(value)
        began = time.perf_counter()
        left = records
        while left:
            count = min(left, AT_ONCE)
            taken = LIBRARY.rd_kafka_produce_batch(target, ANY_PARTITION, 0, batch, count)
            assert taken == count, f"{taken} of {count} records taken"
            left -= count
        assert LIBRARY.rd_kafka_flush(self._handle, TIMEOUT_MS) == 0
        seconds = time.perf_counter() - began
        LIBRARY.rd_kafka_topic_destroy(target)
        return seconds

    def produce_steadily(self, topic: str, value: bytes, rate: int, seconds: float) -> int:
        """So many records a second, each with a key; how many, when all are acknowledged."""
        target = ctypes.c_void_p(LIBRARY.rd_kafka_topic_new(self._handle, topic.encode(), None))
        payload = ctypes.create_string_buffer(value, len(value))
        keys = [ctypes.create_string_buffer(b"%04d" % number, 4) for number in range(KEYS)]
        batch = (_Message * KEYS)()
        for message, key in zip(batch, keys, strict=True):
            message.payload = ctypes.addressof(payload)
            message.length = len(value)
            message.key = ctypes.addressof(key)
            message.key_length = len(key)
        began = time.perf_counter()
        sent = 0
        while (passed := time.perf_counter() - began) < seconds:
            due = int(passed * rate) - sent
            if due < rate * TICK_SECONDS:
                time.sleep(TICK_SECONDS)
                continue
            first = sent % KEYS
            count = min(due, KEYS - first)
            some = ctypes.byref(batch, first * ctypes.sizeof(_Message))
            taken = LIBRARY.rd_kafka_produce_batch(target, ANY_PARTITION, 0, some, count)
            assert taken == count, f"{taken} of {count} records taken"
            sent += count
        assert LIBRARY.rd_kafka_flush(self._handle, TIMEOUT_MS) == 0
        LIBRARY.rd_kafka_topic_destroy(target)
        return sent

    def consume(self, topic: str, partitions: int, records: int, size: int) -> float:
        """Seconds until so many records of this size have come, from the beginning on."""
        source = ctypes.c_void_p(LIBRARY.rd_kafka_topic_new(self._handle, topic.encode(), None))
        queue = ctypes.c_void_p(LIBRARY.rd_kafka_queue_new(self._handle))
        callback = ctypes.c_void_p(_count.address)
        counts = np.zeros(3, np.int64)
        opaque = ctypes.c_void_p(counts.ctypes.data)
        began = time.perf_counter()
        for partition in range(partitions):
            failed = LIBRARY.rd_kafka_consume_start_queue(
                source, partition, ctypes.c_int64(0), queue
            )
            assert failed == 0
        came = began
        while counts[0] < records:
            if LIBRARY.rd_kafka_consume_callback_queue(queue, 100, callback, opaque):
                came = time.perf_counter()
            assert time.perf_counter() - came < IDLE_SECONDS, f"{counts[0]} of {records} arrived"
        seconds = time.perf_counter() - began
        assert counts.tolist() == [records, records * size, 0]
        for partition in range(partitions):
            LIBRARY.rd_kafka_consume_stop(source, partition)
        LIBRARY.rd_kafka_queue_destroy(queue)
        LIBRARY.rd_kafka_topic_destroy(source)
        return seconds


class ShareMember:
    """A member of a share group that acknowledges what it has polled with the next poll."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        error = ctypes.create_string_buffer(ERROR_BYTES)
        conf = _settings({"bootstrap.servers": bootstrap, "group.id": group, "log_level": "3"})
        made = LIBRARY.rd_kafka_share_consumer_new(conf, error, ctypes.c_size_t(ERROR_BYTES))
        assert made, error.value
        self._handle = ctypes.c_void_p(made)
        topics = ctypes.c_void_p(LIBRARY.rd_kafka_topic_partition_list_new(1))
        LIBRARY.rd_kafka_topic_partition_list_add(topics, topic.encode(), ANY_PARTITION)
        assert LIBRARY.rd_kafka_share_subscribe(self._handle, topics) == 0
        LIBRARY.rd_kafka_topic_partition_list_destroy(topics)

    def poll(self, seconds: float) -> int:
        """How many records came."""
        batch = ctypes.c_void_p()
        _check(LIBRARY.rd_kafka_share_poll(self._handle, int(seconds * 1000), ctypes.byref(batch)))
        if not batch.value:
            return 0
        records: int = LIBRARY.rd_kafka_messages_count(batch)
        LIBRARY.rd_kafka_messages_destroy(batch)
        return records

    def commit(self) -> None:
        outcomes = ctypes.c_void_p()
        _check(LIBRARY.rd_kafka_share_commit_sync(self._handle, TIMEOUT_MS, ctypes.byref(outcomes)))
        if outcomes.value:
            LIBRARY.rd_kafka_topic_partition_list_destroy(outcomes)

    def close(self) -> None:
        _check(LIBRARY.rd_kafka_share_consumer_close(self._handle))
        LIBRARY.rd_kafka_share_destroy(self._handle)
