"""The simple assignor, held to its promises."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.groups.share_assignor import ShareReader, assign_simple
from tests.support.groups_consumer import of, topic_id

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordination.groups.partitions import Partitions

T, U = topic_id("t"), topic_id("u")
ONE, BOTH = frozenset({T}), frozenset({T, U})


def fresh(members: int, partitions: int) -> list[int]:
    readers = {f"m{n:02}": ShareReader(ONE) for n in range(members)}
    shares = assign_simple(readers, of("t", *range(partitions)))
    return [len(shares[member_id]) for member_id in sorted(shares)]


@pytest.mark.parametrize(
    ("members", "partitions", "counts"),
    [
        (1, 3, [3]),
        (3, 2, [2, 1, 1]),
        (4, 1, [1, 1, 1, 1]),
        (2, 4, [2, 2]),
        (3, 4, [2, 1, 1]),
        (5, 2, [2, 1, 1, 1, 1]),
        (2, 0, [0, 0]),
    ],
)
def test_sizes(members: int, partitions: int, counts: list[int]) -> None:
    assert fresh(members, partitions) == counts


def test_no_members() -> None:
    assert assign_simple({}, of("t", 0)) == {}


def test_nobody_is_given_what_it_does_not_read() -> None:
    readers = {"a": ShareReader(ONE, of("u", 0)), "b": ShareReader(BOTH)}
    shares = assign_simple(readers, of("t", 0) | of("u", 0, 1))
    assert shares == {"a": of("t", 0), "b": of("t", 0) | of("u", 0, 1)}


def test_who_has_enough_keeps_it() -> None:
    readers = {"a": ShareReader(ONE, of("t", 0, 1, 2, 3)), "b": ShareReader(ONE)}
    shares = assign_simple(readers, of("t", 0, 1, 2, 3))
    assert shares["a"] < readers["a"].current
    assert shares["a"] | shares["b"] == of("t", 0, 1, 2, 3)
    assert not shares["a"] & shares["b"]


def test_a_partition_with_too_many_members_gives_some_away() -> None:
    readers = {m: ShareReader(ONE, of("t", 0)) for m in "abcd"}
    shares = assign_simple(readers, of("t", 0, 1))
    assert sorted(shares.values(), key=sorted) == [of("t", 0)] * 2 + [of("t", 1)] * 2


subsets = st.frozensets(st.sampled_from(sorted(of("t", *range(4)) | of("u", *range(3)))))


def groups_of(*topics: frozenset[UUID]) -> st.SearchStrategy[dict[str, ShareReader]]:
    readers = st.builds(ShareReader, st.sampled_from(topics), subsets)
    return st.dictionaries(st.sampled_from("abcdefgh"), readers, min_size=1)


groups = st.one_of(groups_of(ONE), groups_of(BOTH), groups_of(ONE, BOTH, frozenset({U})))


@given(groups, subsets)
def test_promises(members: dict[str, ShareReader], assignable: Partitions) -> None:
    shares = assign_simple(members, assignable)
    assert shares.keys() == members.keys()
    read = {p for p in assignable if any(p[0] in reader.topics for reader in members.values())}
    assert frozenset().union(*shares.values()) == read
    for member_id, share in shares.items():
        topics = members[member_id].topics
        mine = {p for p in assignable if p[0] in topics}
        assert share <= mine
        assert bool(share) == bool(mine)
    if len({reader.topics for reader in members.values()}) == 1:
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1
        if read:
            sharing = -(-len(members) // len(read))
            held = [sum(p in share for share in shares.values()) for p in read]
            assert max(held) <= sharing


@given(groups, subsets)
def test_a_second_time_changes_nothing(
    members: dict[str, ShareReader],
    assignable: Partitions,
) -> None:
    shares = assign_simple(members, assignable)
    again = {m: ShareReader(reader.topics, shares[m]) for m, reader in members.items()}
    assert assign_simple(again, assignable) == shares


def test_every_start_with_three_members_and_two_partitions() -> None:
    """All previous assignments there can be: 4 ** 3."""
    partitions = of("t", 0, 1)
    choices = [frozenset(), of("t", 0), of("t", 1), partitions]
    for before in itertools.product(choices, repeat=3):
        members = {m: ShareReader(ONE, had) for m, had in zip("abc", before, strict=True)}
        shares = assign_simple(members, partitions)
        assert frozenset().union(*shares.values()) == partitions
        assert all(shares.values())
