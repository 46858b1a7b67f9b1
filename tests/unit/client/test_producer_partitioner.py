"""Keys go where every other Kafka client sends them, one by one and by the column."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producer.partition_kernels import group_rows, hash_keys
from ottla.client.producer.partitioner import StickyPartitioner, murmur2, partition_of_key

with warnings.catch_warnings():
    # kafka-python 3 reads its resources in a way that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2

KEYS = st.binary(max_size=40)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From the tests of Kafka's own Utils.murmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_kafkas_own_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(KEYS)
def test_the_hash_is_that_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@given(st.lists(st.none() | KEYS, max_size=30), st.integers(1, 7), st.integers(0, 3))
def test_a_column_of_keys_is_hashed_as_its_rows_are(
    keys: list[bytes | None], count: int, first: int
) -> None:
    content = np.frombuffer(b"".join(key or b"" for key in keys) + b"\0", np.uint8)
    offsets = np.cumsum([0] + [len(key or b"") for key in keys], dtype=np.int64)
    valid = np.array([key is not None for key in keys], bool)
    found = np.full(len(keys), first, np.int32)
    hash_keys(offsets, content.ctypes.data, valid, count, found)
    expected = [first if key is None else partition_of_key(key, count) for key in keys]
    assert found.tolist() == expected


@given(st.lists(st.integers(0, 4), max_size=50))
def test_rows_are_grouped_in_order(partitions: list[int]) -> None:
    ends = np.zeros(5, np.int64)
    order = np.empty(len(partitions), np.int64)
    group_rows(np.array(partitions, np.int32), ends, order)
    rows = sorted(range(len(partitions)), key=lambda row: partitions[row])
    assert order.tolist() == rows
    counts = Counter(partitions)
    assert np.diff(ends, prepend=0).tolist() == [counts[partition] for partition in range(5)]


def test_records_without_a_key_stick_until_a_batch_is_full() -> None:
    sticky = StickyPartitioner(100, lambda: 0.0)
    assert [sticky.pick("t", [0, 1, 2], 50) for _ in range(5)] == [0, 0, 1, 1, 0]
    assert sticky.pick("t", [2], 50) == 2  # partition 0 has lost its leader
    assert sticky.pick("u", [0, 1, 2], 50) == 0


@given(st.randoms(use_true_random=False), st.integers(2, 5))
def test_no_partition_is_taken_twice_in_a_row(random: object, count: int) -> None:
    sticky = StickyPartitioner(1, random.random)  # type: ignore[attr-defined]  # a random.Random
    picked = [sticky.pick("t", range(count), 1) for _ in range(20)]
    assert all(one != other for one, other in pairwise(picked))
