"""Every interleaving of two and three nodes' steps, kills and opens (cases 10, 11 and 12)."""

from __future__ import annotations

import pytest

from tests.support.handover_search import Search


@pytest.mark.parametrize(("nodes", "moves", "kills"), [(2, 3, 3), (3, 2, 1), (3, 3, 0)])
def test_one_directory_one_holder_and_no_empty_log(nodes: int, moves: int, kills: int) -> None:
    search = Search(nodes, moves, kills)
    search.run()
    assert len(search.edges) > 1000
    assert search.dead_ends() == []


def test_the_search_finds_a_directory_that_slips_past_a_look_without_the_lock() -> None:
    with pytest.raises(AssertionError, match="an empty log beside another"):
        Search(3, 2, 0, has_lock=False).run()


def test_the_search_finds_a_log_that_moves_without_recovery() -> None:
    with pytest.raises(AssertionError, match="trusted, but not recovered"):
        Search(2, 1, 1, recovers=False).run()
