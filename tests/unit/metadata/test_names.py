"""Topic names and topic ids."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.metadata.errors import InvalidTopicName
from ottla.metadata.image import Topic, random_topic_id, topic_id_text
from ottla.metadata.names import INTERNAL_TOPICS, check_topic_name, collision_key, is_internal

LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"


@given(st.text(LEGAL, min_size=1, max_size=249).filter(lambda name: name not in {".", ".."}))
@example("...")
@example("a" * 249)
def test_legal_names_pass(name: str) -> None:
    assert check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a\n", "ä", "a" * 250, "\x00"])
def test_illegal_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="1 to 249 characters"):
        check_topic_name(name)


def test_a_hostile_name_does_not_fill_the_log() -> None:
    with pytest.raises(InvalidTopicName, match="1000000 characters") as refused:
        check_topic_name("x" * 1_000_000)
    assert len(str(refused.value)) < 250


def test_collisions() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a-b") != collision_key("a_b")


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__remote_log_metadata")
    assert all(Topic(name, UUID(int=9), ()).internal for name in INTERNAL_TOPICS)


def test_ids_are_printed_as_kafka_prints_them() -> None:
    assert topic_id_text(UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert topic_id_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert topic_id_text(UUID(int=2**128 - 1)) == "_____________________w"


def test_random_ids_avoid_the_reserved_and_the_dash() -> None:
    dashed = UUID(int=0b111110 << 122)
    assert topic_id_text(dashed).startswith("-")
    offered = iter([UUID(int=0), UUID(int=1), dashed, UUID(int=7)])
    assert random_topic_id(lambda: next(offered)) == UUID(int=7)
